// How much of the space of objectives the results reach: the hypervolume between a front and a reference point, exactly,
// by the exclusive volume of each point (While, Bradstreet, Barone 2012, "A fast way of calculating exact hypervolumes").

/** @typedef {readonly number[]} Point one number for each objective, more is better */

/**
 * @param {Point} a
 * @param {Point} b
 */
const covers = (a, b) => a.every((value, place) => value >= b[place]);

/**
 * The points that no other one covers, one of those that are equal.
 * @param {readonly Point[]} points
 */
function undominated(points) {
  return points.filter(
    (one, at) =>
      !points.some((other, place) => place !== at && covers(other, one) && (place < at || !covers(one, other))),
  );
}

/**
 * What only this point reaches, beside others.
 * @param {Point} point above the reference point in all
 * @param {readonly Point[]} others
 * @param {Point} reference
 * @returns {number}
 */
function exclusive(point, others, reference) {
  const own = point.reduce((volume, value, place) => volume * (value - reference[place]), 1);
  const limited = others.map((other) => other.map((value, place) => Math.min(value, point[place])));
  return own - volumeOf(undominated(limited), reference);
}

/**
 * @param {readonly Point[]} front
 * @param {Point} reference
 */
function volumeOf(front, reference) {
  return front.reduce((volume, point, place) => volume + exclusive(point, front.slice(place + 1), reference), 0);
}

/**
 * The hypervolume after each point. A point adds what it reaches beside the front so far.
 * @param {readonly Point[]} points in the order of time
 * @param {Point} reference what is not above it in each objective reaches nothing
 */
export function growth(points, reference) {
  /** @type {Point[]} */
  let front = [];
  let volume = 0;
  return points.map((point) => {
    const isInside = point.every((value, place) => value > reference[place]);
    if (isInside && !front.some((other) => covers(other, point))) {
      volume += Math.max(0, exclusive(point, front, reference)); // below 0 by rounding only
      front = [...front.filter((other) => !covers(point, other)), point];
    }
    return volume;
  });
}
