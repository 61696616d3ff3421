// Lines of steps, such as the best result so far.

const NEAR = 1 / 300; // of the axis: more than a pixel, and less than one sees

/**
 * The points of such a line for `step: "end"`, and one close after each that stands alone. Without these ECharts leaves
 * out a step of less than a pixel, and draws a slope from there to the next one.
 * @param {[number, number | null][]} points
 * @returns {[number, number | null][]}
 */
export function stairs(points) {
  const near = ((points.at(-1)?.[0] ?? 0) - (points[0]?.[0] ?? 0)) * NEAR;
  return points.flatMap(([x, y], place) => {
    const next = points[place + 1];
    return next && next[0] - x > 2 * near
      ? [
          [x, y],
          [x + near, y],
        ]
      : [[x, y]];
  });
}
