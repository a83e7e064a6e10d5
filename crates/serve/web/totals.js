// Increases of counters over the shown time, exact to the sample: the difference of stored values.
//
// Counters of programs are stored only when they change, so the value at the beginning of the window may be much
// older than the window. It is read once and then advanced with the window; a tick costs two small requests.

import { status } from "./agent.js";
import { past, WHOLE_MS } from "./history.js";
import { textOf } from "./series.js";
import { bounds, stretch } from "./window.js";

/**
 * @typedef {{name: string, labels: Record<string, string>, increase: number}} Increase
 * @typedef {{from: number, to: number, series: Increase[]}} Increases
 */

export class Totals {
  /** @param {string[]} patterns */
  constructor(patterns) {
    this.patterns = patterns;
    /** Values at the time `at`; a series that is missing did not exist. @type {Map<string, number>} */
    this.base = new Map();
    this.at = -1;
  }

  /** @returns {Promise<Increases>} */
  async load() {
    const oldest = (await status.get()).store.oldest ?? stretch.now;
    const [start, to] = bounds();
    // Values in the first samples of the store were counted before them, not in the shown time.
    const from = Math.min(Math.max(start, oldest + 2 * stretch.rate), to);
    if (from < this.at) this.at = -1;
    if (this.at < 0) this.base.clear();
    const [earlier, inside] = await Promise.all([
      this.at < from ? past(this.patterns, this.at + 1, from, WHOLE_MS) : [],
      past(this.patterns, from + 1, to, WHOLE_MS),
    ]);
    for (const each of earlier) {
      const value = lastValue(each.points);
      if (value !== null) this.base.set(textOf(each.name, each.labels), value);
    }
    this.at = from;
    const series = inside.map(({ name, labels, points }) => {
      const value = lastValue(points) ?? 0;
      const before = this.base.get(textOf(name, labels)) ?? 0;
      // A counter that decreased was reset.
      return { name, labels, increase: value >= before ? value - before : value };
    });
    return { from, to, series };
  }
}

/** @param {[number, number | null][]} points */
function lastValue(points) {
  return points[points.length - 1]?.[1] ?? null;
}
