// The time window that all charts show. Its times are those of the node, taken from samples: the browser's clock may
// differ.

/** @typedef {{span: number, end: number | null, now: number, oldest: number | null, rate: number}} Stretch */

export const SPANS = [60e3, 300e3, 900e3, 3600e3, 6 * 3600e3, 24 * 3600e3, 48 * 3600e3];
const SPAN_MIN = 5e3;
const SPAN_MAX = 60 * 86400e3;

/** @type {Stretch} */
export const stretch = { span: 300e3, end: null, now: Date.now(), oldest: null, rate: 500 };

/** @type {Set<() => void>} */
const listeners = new Set();

/**
 * Registers a listener for moves of the window by the user, not for the advance of live time.
 * @param {() => void} listener
 */
export function onMove(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function isLive() {
  return stretch.end === null;
}

/** @returns {[number, number]} */
export function bounds() {
  const to = stretch.end ?? stretch.now;
  return [to - stretch.span, to];
}

/**
 * @param {number} span
 * @param {number | null} end
 */
export function move(span, end) {
  const oldest = stretch.oldest ?? -Infinity;
  stretch.span = Math.min(Math.max(span, SPAN_MIN), SPAN_MAX);
  // An end at or after the newest sample means that the window follows live data.
  const follows = end === null || end >= stretch.now - stretch.rate;
  stretch.end = follows ? null : Math.max(end, oldest + Math.min(stretch.span, stretch.now - oldest));
  for (const listener of [...listeners]) listener();
}

/** @param {number} share of the window, to the right */
export function pan(share) {
  const [, to] = bounds();
  move(stretch.span, to + stretch.span * share);
}

/**
 * @param {number} factor of the window's length
 * @param {number} [centre]
 */
export function zoom(factor, centre) {
  const [from, to] = bounds();
  if (isLive() && centre === undefined) return move(stretch.span * factor, null);
  const middle = centre ?? (from + to) / 2;
  const span = Math.min(stretch.span * factor, SPAN_MAX);
  const share = (middle - from) / (to - from);
  move(span, middle + span * (1 - share));
}

/** Shows everything in the store. */
export function showAll() {
  if (stretch.oldest === null) return;
  move(stretch.now - stretch.oldest, null);
}

const STEPS = [
  100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 7200e3,
  21600e3, 86400e3,
];

/**
 * Returns the milliseconds per point, so that a line has about as many points as pixels.
 * @param {number} span
 * @param {number} pixels
 * @param {number} rate between two samples
 */
export function fitStep(span, pixels, rate) {
  const wanted = span / Math.min(Math.max(pixels, 100), 1200);
  const step = STEPS.find((candidate) => candidate >= wanted * 0.8) ?? STEPS[STEPS.length - 1];
  // A step that is not a multiple of the rate would contain sometimes one sample, sometimes two.
  return Math.max(Math.ceil(step / rate) * rate, rate);
}
