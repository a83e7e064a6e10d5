// Loads the lines of a PromQL expression for a chart: when the time window moves, and periodically while it follows
// live data. It has the interface of `Feed`.

import { ask, ofJob } from "./agent.js";
import { labelText } from "./series.js";
import { bounds, fitStep, isLive, onMove, stretch } from "./window.js";

const RELOAD_MS = 5e3;
/** More lines than this are counted and not drawn. */
const LINES_MAX = 64;

/** An answer as `Panel` reads frames. */
class ExpressionFrame {
  constructor() {
    /** @type {number[]} */
    this.times = [];
    /** @type {{label: string, labels: Record<string, string>, data: (number | null)[]}[]} */
    this.all = [];
    /** @type {Set<string>} */
    this.leftOut = new Set();
    this.groups = new Map();
    this.queries = [];
  }

  lines() {
    return this.all;
  }
}

export class ExpressionFeed {
  /**
   * @param {string} expression
   * @param {import("./feed.js").Drawer} drawer
   */
  constructor(expression, drawer) {
    this.expression = expression;
    this.drawer = drawer;
    this.frame = new ExpressionFrame();
    /** @type {string | null} */
    this.failure = null;
    this.loading = 0;
    this.stopMoving = onMove(() => {
      this.drawer.slide?.();
      this.reload();
    });
    this.timer = setInterval(() => !document.hidden && isLive() && this.reload(), RELOAD_MS);
    // The element gets its width when it is part of the page.
    requestAnimationFrame(() => this.reload());
  }

  async reload() {
    const number = (this.loading += 1);
    const [from, to] = bounds();
    const step = fitStep(to - from, this.drawer.width() || 400, Math.max(stretch.rate, 500));
    const end = Math.floor(to / step) * step;
    const start = Math.ceil(from / step) * step;
    try {
      const answer = await ask(
        "api/v1/query_range",
        ofJob([
          ["query", this.expression],
          ["start", String(start / 1000)],
          ["end", String(end / 1000)],
          ["step", String(step / 1000)],
        ]),
      );
      if (number !== this.loading) return;
      this.frame = frameOf(answer.data.result, start, end, step);
      this.failure = null;
    } catch (error) {
      if (number !== this.loading) return;
      this.frame = new ExpressionFrame();
      this.failure = error instanceof Error ? error.message : String(error);
    }
    this.drawSoon();
  }

  drawSoon() {
    requestAnimationFrame(() => this.loading >= 0 && this.drawer.draw());
  }

  dispose() {
    this.loading = -Infinity;
    clearInterval(this.timer);
    this.stopMoving();
  }
}

/**
 * @param {{metric: Record<string, string>, values: [number, string][]}[]} result
 * @param {number} start
 * @param {number} end
 * @param {number} step
 */
function frameOf(result, start, end, step) {
  const frame = new ExpressionFrame();
  const count = Math.max(Math.floor((end - start) / step) + 1, 0);
  frame.times = Array.from({ length: count }, (_, at) => (start + at * step) / 1000);
  frame.all = result.slice(0, LINES_MAX).map(({ metric, values }) => {
    const data = new Array(count).fill(null);
    for (const [time, value] of values) {
      const at = Math.round((time * 1000 - start) / step);
      // NaN and infinities cannot be drawn.
      if (Number.isFinite(Number(value))) data[at] = Number(value);
    }
    const { __name__: name = "", ...labels } = metric;
    return { label: `${name} ${labelText(labels)}`.trim() || "value", labels, data };
  });
  for (const { metric } of result.slice(LINES_MAX)) frame.leftOut.add(JSON.stringify(metric));
  return frame;
}
