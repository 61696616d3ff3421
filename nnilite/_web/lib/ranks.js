// Numbers in their order: what place each one has, and which share of all is not above it.

/**
 * The place of each value in ascending order, from 0 for the lowest to 1 for the highest. Equal ones share the middle of
 * their places.
 * @param {number[]} values
 */
export function ranks(values) {
  const order = [...values.keys()].sort((a, b) => values[a] - values[b]);
  const found = new Array(values.length).fill(0.5);
  const last = values.length - 1;
  for (let from = 0; last > 0 && from <= last; ) {
    let to = from;
    while (to < last && values[order[to + 1]] === values[order[from]]) to += 1;
    for (let place = from; place <= to; place += 1) found[order[place]] = (from + to) / 2 / last;
    from = to + 1;
  }
  return found;
}

/**
 * The empirical distribution function: for each value that occurs, which share of all is not above it. It begins with
 * the share 0 at the lowest value.
 * @param {number[]} values
 * @returns {[value: number, share: number][]}
 */
export function shares(values) {
  const order = Float64Array.from(values).sort();
  /** @type {[number, number][]} */
  const found = order.length ? [[order[0], 0]] : [];
  order.forEach((value, place) => {
    if (value !== order[place + 1]) found.push([value, (place + 1) / order.length]);
  });
  return found;
}

/**
 * The value that so much of all values is not above.
 * @param {number[]} values at least one
 * @param {number} share from 0 to 1
 */
export function quantile(values, share) {
  const order = Float64Array.from(values).sort();
  return order[Math.max(0, Math.ceil(share * order.length) - 1)];
}
