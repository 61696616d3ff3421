// How far an axis of results goes where a few of them are wild.

/**
 * Wild results must not press all others into one line, so those that are far worse than the rest are cut off. The best
 * ones are not, however far they are: they are what the search is for.
 * @param {number[]} values
 * @param {string} goal
 */
export function robustRange(values, goal) {
  /** @type {{ min?: number, max?: number }} */
  const range = {};
  if (values.length < 20) return range;
  const order = Float64Array.from(values).sort();
  /** @param {number} share */
  const at = (share) => order[Math.round(share * (order.length - 1))];
  const [low, high] = [at(0.02), at(0.98)];
  const room = (high - low) * 1.5 || 1;
  if (goal === "minimize") {
    if (order[order.length - 1] > high + room * 2) range.max = high + room * 0.2;
  } else if (order[0] < low - room * 2) range.min = low - room * 0.2;
  return range;
}
