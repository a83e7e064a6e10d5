// Marks and phases of programs, on every chart: a mark is a vertical line, a phase a band. One request serves all
// charts of the page.

import { ask } from "./agent.js";
import { isConnected } from "./live.js";
import { colour } from "./theme.js";
import { bounds, onMove } from "./window.js";

/**
 * @typedef {{
 *   kind: "mark" | "phase" | "annotation",
 *   text: string,
 *   start: number,
 *   end: number | null,
 *   notes?: string,
 *   labels: Record<string, string>,
 * }} Mark
 */

const EVERY_MS = 3000;
/** The pointer shows marks at most this many pixels away. */
const REACH_PX = 6;
const DASH = [4, 3];

/** @type {Mark[]} */
let marks = [];
let shape = "[]";
let loading = false;
/** @type {Set<() => void>} */
const listeners = new Set();

/**
 * Registers a listener for changes of the marks.
 * @param {() => void} listener
 */
export function onMarks(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function startMarks() {
  load();
  onMove(load);
  setInterval(() => !document.hidden && isConnected() && load(), EVERY_MS);
}

async function load() {
  if (loading) return;
  loading = true;
  const [from, to] = bounds();
  try {
    const answer = await ask("api/v1/marks", [
      ["start", String(Math.max(Math.floor(from), 0) / 1000)],
      ["end", String((Math.ceil(to) + EVERY_MS) / 1000)],
    ]);
    use(answer.marks);
  } catch {
    // Without an answer, the state of the connection is shown elsewhere.
  } finally {
    loading = false;
  }
  // The window moved meanwhile.
  const [nowFrom, nowTo] = bounds();
  if (nowTo - nowFrom !== to - from || Math.abs(nowTo - to) > 2 * EVERY_MS) setTimeout(load);
}

/** @param {Mark[]} found */
function use(found) {
  const next = JSON.stringify(found);
  if (next === shape) return;
  shape = next;
  marks = found;
  for (const listener of [...listeners]) listener();
}

/** The time at which a mark ends on the charts: a phase that is not over lasts until now. @param {Mark} mark */
function endOf(mark) {
  if (mark.end !== null) return mark.end;
  return mark.kind === "phase" ? Math.max(bounds()[1], mark.start) : mark.start;
}

/** Draws the bands of phases, below the lines of a chart. @param {any} plot @param {number} scale */
export function drawPhases(plot, scale) {
  each(plot, scale, (mark, left, right, { ctx, bbox }) => {
    if (mark.kind === "mark" || right <= left) return;
    ctx.globalAlpha = 0.1;
    ctx.fillRect(left, bbox.top, right - left, bbox.height);
    ctx.globalAlpha = 0.7;
    ctx.fillRect(left, bbox.top, right - left, 3 * scale);
  });
}

/** Draws the lines of marks and of the starts of phases. @param {any} plot @param {number} scale */
export function drawMarks(plot, scale) {
  each(plot, scale, (mark, left, _right, { ctx, bbox }) => {
    if (left < bbox.left || left > bbox.left + bbox.width) return;
    ctx.beginPath();
    ctx.setLineDash(mark.kind === "phase" ? DASH.map((part) => part * scale) : []);
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
  });
}

/**
 * @param {any} plot
 * @param {number} scale
 * @param {(mark: Mark, left: number, right: number, plot: any) => void} draw
 */
function each(plot, scale, draw) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.lineWidth = 1.5 * scale * devicePixelRatio;
  const paint = { mark: colour("accent"), phase: colour("warm"), annotation: colour("accent") };
  const place = (/** @type {number} */ time) => plot.valToPos(time / 1000, "x", true);
  for (const mark of marks) {
    ctx.fillStyle = paint[mark.kind];
    ctx.strokeStyle = paint[mark.kind];
    const right = Math.min(place(endOf(mark)), bbox.left + bbox.width);
    draw(mark, Math.round(place(mark.start)), right, plot);
  }
  ctx.restore();
}

/**
 * The marks at the pointer: near its time, or around it.
 * @param {number} time in milliseconds
 * @param {number} width of the plot in pixels
 * @returns {Mark[]}
 */
export function marksAt(time, width) {
  const [from, to] = bounds();
  const reach = ((to - from) / Math.max(width, 1)) * REACH_PX;
  return marks.filter((mark) => mark.start <= time + reach && endOf(mark) >= time - reach);
}

/** Describes who set a mark. @param {Mark} mark */
export function origin(mark) {
  const { user, program, pid, rank } = mark.labels;
  const process = [program, pid && `pid ${pid}`, rank && `rank ${rank}`].filter(Boolean).join(" ");
  return [user, process].filter(Boolean).join(", ");
}
