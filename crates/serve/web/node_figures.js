// The figures of nodes, their scales, and the order and filter of nodes.

/**
 * @typedef {{figure: string, value: number, median: number}} Outlier
 * @typedef {{
 *   node: string, parent: string, state: string, lag_ms: number | null, clock_offset_ms: number | null,
 *   version: string, is_parent: boolean, outliers: Outlier[], problem: string, value?: number | null,
 * } & Record<string, any>} NodeRow
 * @typedef {{title: string, unit: string, low?: number, high?: number, hint: string}} Figure
 */

/** From good to bad. */
export const STATES = ["up", "late", "lost", "refused"];
export const STANDS_OUT = "standing out";

/** @type {Record<string, Figure>} */
export const FIGURES = {
  busy: { title: "Busy", unit: "%", low: 0, high: 100, hint: "Processors in use" },
  memory: { title: "Memory", unit: "%", low: 0, high: 100, hint: "Memory in use" },
  pressure: { title: "Pressure", unit: "%", low: 0, high: 100, hint: "Time in which tasks waited for a resource" },
  gpu: { title: "GPU", unit: "%", low: 0, high: 100, hint: "GPUs in use" },
  network: { title: "Network", unit: "bytes/s", low: 0, hint: "Received and sent" },
  temperature: { title: "Temperature", unit: "celsius", low: 20, high: 100, hint: "The highest temperature" },
  load: { title: "Load", unit: "", low: 0, hint: "Mean number of runnable tasks, over a minute" },
};

export const ORDERS = { name: "name", value: "value", state: "state" };
const collator = new Intl.Collator(undefined, { numeric: true });
export const byName = (/** @type {NodeRow} */ a, /** @type {NodeRow} */ b) => collator.compare(a.node, b.node);

/** Whether a node is connected. @param {NodeRow} row */
export function isConnected(row) {
  return row.state === "up" || row.state === "late";
}

/** The values of the first and the last colour. @param {Figure} figure @param {number[]} values */
export function scaleOf(figure, values) {
  const low = figure.low ?? Math.min(0, ...values);
  const most = figure.high ?? values.reduce((max, value) => Math.max(max, value), low);
  if (figure.high !== undefined || most <= low) return [low, Math.max(most, low + 1)];
  // A round number, so that colours do not change with every update.
  if (figure.unit.startsWith("bytes")) return [low, 2 ** Math.ceil(Math.log2(most))];
  const power = 10 ** Math.floor(Math.log10(most));
  const round = [1, 2, 5, 10].find((factor) => factor * power >= most) ?? 10;
  return [low, round * power];
}

/** @param {number[]} values */
export function middle(values) {
  if (values.length === 0) return NaN;
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/** Every word must be the state, or a part of the name. @param {string} text @returns {(row: NodeRow) => boolean} */
export function filterOf(text) {
  const trimmed = text.trim().toLowerCase();
  if (trimmed === STANDS_OUT) return (row) => row.outliers.length > 0;
  const words = trimmed.split(/\s+/).filter(Boolean);
  return (row) => {
    const name = row.node.toLowerCase();
    return words.every((word) => (STATES.includes(word) ? row.state === word : name.includes(word)));
  };
}

/** @param {string} order @param {(row: NodeRow) => number | null} valueOf @returns {(a: NodeRow, b: NodeRow) => number} */
export function orderOf(order, valueOf) {
  if (order === "value") return (a, b) => (valueOf(b) ?? -Infinity) - (valueOf(a) ?? -Infinity) || byName(a, b);
  const trouble = (/** @type {NodeRow} */ row) => STATES.indexOf(row.state) + (row.outliers.length > 0 ? 0.5 : 0);
  if (order === "state") return (a, b) => trouble(b) - trouble(a) || byName(a, b);
  return byName;
}
