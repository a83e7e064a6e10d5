// Computations on columns of a time grid.

/**
 * @typedef {import("./frame.js").Frame} Frame
 * @typedef {import("./frame.js").Column} Column
 * @typedef {import("./frame.js").Group} Group
 * @typedef {{times: number[], lines: (key?: string) => Group[]}} Lines anything that has lines: a frame, or its recent means
 */

/**
 * Adds columns cell by cell; a cell that all of them lack is empty.
 * @param {Column[]} columns
 * @returns {Column}
 */
export function summed(columns) {
  return (columns[0] ?? []).map((_, at) =>
    columns.reduce(
      (total, column) => (column[at] == null ? total : (total ?? 0) + /** @type {number} */ (column[at])),
      /** @type {number | null} */ (null),
    ),
  );
}

/** The mean of the cells that have a value. @param {Column} column @returns {number | null} */
export function mean(column) {
  let sum = 0;
  let count = 0;
  for (const value of column) {
    if (value === null) continue;
    sum += value;
    count += 1;
  }
  return count > 0 ? sum / count : null;
}

/** @param {Column | undefined} column */
export function last(column) {
  return column?.findLast((value) => value !== null) ?? null;
}

/**
 * Combines lines cell by cell; a cell that lacks one of them is empty.
 * @param {Lines} frame
 * @param {string[]} keys
 * @param {(...values: number[]) => number} make
 * @returns {Column}
 */
export function combined(frame, keys, make) {
  const columns = keys.map((key) => frame.lines(key)[0]?.data ?? null);
  if (columns.some((each) => each === null)) return frame.times.map(() => null);
  return frame.times.map((_, at) => {
    const values = columns.map((each) => /** @type {Column} */ (each)[at]);
    return values.some((value) => value === null || value === undefined)
      ? null
      : make(.../** @type {number[]} */ (values));
  });
}

/**
 * Returns one line per group of the first key, combined with the groups of the other keys that have the same labels.
 * @param {Lines} frame
 * @param {string[]} keys
 * @param {(...values: number[]) => number | null} make
 */
export function joined(frame, keys, make) {
  const others = keys
    .slice(1)
    .map((key) => new Map(frame.lines(key).map((group) => [JSON.stringify(group.labels), group.data])));
  return frame.lines(keys[0]).flatMap((group) => {
    const columns = [group.data, ...others.map((known) => known.get(JSON.stringify(group.labels)))];
    if (columns.some((column) => !column)) return [];
    const data = group.data.map((_, at) => {
      const values = columns.map((column) => /** @type {Column} */ (column)[at] ?? null);
      return values.some((value) => value === null) ? null : make(.../** @type {number[]} */ (values));
    });
    return [{ label: group.label, data }];
  });
}

/**
 * Returns the largest lines, and the sum of the others. Their order is fixed when they are loaded, so that colours do
 * not change with every tick.
 * @param {number} count
 * @param {boolean} [rest] whether the others are shown
 * @returns {(frame: Frame) => import("./chart.js").Line[]}
 */
export function largestFirst(count, rest = true) {
  /** @type {WeakMap<Frame, Map<string, number>>} */
  const orders = new WeakMap();
  return (frame) => {
    let order = orders.get(frame);
    if (!order)
      orders.set(frame, (order = new Map(frame.lines().map((group) => [group.id, -(mean(group.data) ?? 0)]))));
    const size = (/** @type {{id: string}} */ group) => order.get(group.id) ?? 0;
    const known = frame.lines().filter((group) => group.data.some((value) => value));
    const lines = known.sort((a, b) => size(a) - size(b) || a.label.localeCompare(b.label));
    const shown = lines.slice(0, count).map((group) => ({ label: group.label, data: group.data }));
    const others = lines.slice(count);
    if (rest && others.length > 0)
      shown.push({ label: `${others.length} others`, data: summed(others.map((group) => group.data)) });
    return shown;
  };
}
