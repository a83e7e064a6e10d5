// One chart of lines over time, drawn by uPlot.

import { clock, number } from "./format.js";
import { drawHeat } from "./heat.js";
import { drawMarks, drawPhases } from "./marks.js";
import { colour, lineColour } from "./theme.js";

/**
 * @typedef {import("./frame.js").Column} Column
 * @typedef {{label: string, data: Column, colour?: string, hidden?: boolean}} Line
 * @typedef {object} Look
 * @property {string} unit
 * @property {boolean} [stack]
 * @property {number} [max] the minimum upper end of the axis
 * @property {boolean} [heat] a heat map: one row per line
 * @property {number} [height]
 * @property {number} [scale] of texts and lines, 1 if missing
 */

/** @type {any} */
const uPlot = /** @type {any} */ (globalThis).uPlot;

const FONT = 'px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
/** Powers of two, so that axes of bytes have round numbers. */
const BINARY_STEPS = Array.from({ length: 60 }, (_, at) => 2 ** at);
/** The height of the time axis and the margin above the plot. */
const AXIS = 34;
/** Filled areas are more expensive than lines, and hide each other. */
const FILL_LINES_MAX = 1;

export class Chart {
  /**
   * @param {HTMLElement} host
   * @param {Look} look
   * @param {{select: (from: number, to: number) => void, point: (cursor: import("./tip.js").Cursor | null) => void}} on
   */
  constructor(host, look, on) {
    this.host = host;
    this.look = look;
    this.on = on;
    this.plot = null;
    this.shape = "";
    /** The width, if the host has none. */
    this.width = 0;
    /** @type {Line[]} */
    this.lines = [];
    /** @type {[number, number]} */
    this.range = [0, 1];
    this.resizer = new ResizeObserver(() => this.#fit());
    this.resizer.observe(host);
  }

  get scale() {
    return this.look.scale ?? 1;
  }

  get height() {
    const height = this.look.height ?? 170;
    if (!this.look.heat) return height;
    // All rows of a heat map have the same number of pixels, at least one; the rest is the time axis.
    const rows = Math.max(this.lines.length, 1);
    return (rows * Math.max(Math.round((170 - AXIS) / rows), 1) + AXIS) * this.scale;
  }

  #fit() {
    const width = this.host.clientWidth;
    if (this.plot && width > 0 && width !== this.plot.width)
      this.plot.setSize({ width, height: this.height });
  }

  /**
   * @param {number[]} times in seconds
   * @param {Line[]} lines
   * @param {[number, number]} bounds in milliseconds
   */
  show(times, lines, bounds) {
    this.range = [bounds[0] / 1000, bounds[1] / 1000];
    const shown = lines.filter((line) => !line.hidden);
    this.lines = shown;
    const shape = JSON.stringify(lines.map((line) => [line.label, line.colour ?? "", !!line.hidden]));
    const data = [times, ...this.#columns(times, shown)];
    if (this.plot && shape === this.shape) this.plot.setData(data);
    else {
      this.shape = shape;
      this.#make(lines, data);
    }
  }

  /** @param {number[]} times @param {Line[]} lines @returns {Column[]} */
  #columns(times, lines) {
    if (this.look.heat) return [times.map(() => null)];
    return this.look.stack ? stacked(lines) : lines.map((line) => line.data);
  }

  /** Draws the same data again. */
  redraw() {
    this.plot?.redraw(false);
  }

  /** Moves the time window without new data. @param {[number, number]} bounds */
  slide(bounds) {
    this.range = [bounds[0] / 1000, bounds[1] / 1000];
    this.plot?.setScale("x", { min: this.range[0], max: this.range[1] });
  }

  /** @param {Line[]} lines @param {any[]} data */
  #make(lines, data) {
    this.plot?.destroy();
    const { heat } = this.look;
    const visible = lines.map((line, at) => ({ ...line, at })).filter((line) => !line.hidden);
    const shown = heat ? visible.slice(0, 1) : visible;
    const paints = shown.map((line) => line.colour ?? lineColour(line.at));
    const fills = this.look.stack || shown.length <= FILL_LINES_MAX;
    const series = shown.map((line, at) => ({
      label: line.label,
      stroke: paints[at],
      width: (this.look.stack ? 1 : 1.4) * this.scale,
      fill:
        !fills || (this.look.stack && at > 0) ? undefined : faint(paints[at], this.look.stack ? 0.5 : 0.12),
      points: { show: false },
      spanGaps: false,
    }));
    const bands = this.look.stack
      ? paints.slice(1).map((paint, at) => ({ series: [at + 2, at + 1], fill: faint(paint, 0.5) }))
      : [];
    const options = {
      width: Math.max(this.width || this.host.clientWidth, 60),
      height: this.height,
      pxAlign: heat ? 0 : 1,
      padding: [8, 26, 0, 0].map((side) => side * this.scale),
      legend: { show: false },
      bands,
      series: [{}, ...series],
      scales: {
        x: { time: true, range: () => this.range },
        y: {
          range: (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) =>
            heat ? [0, Math.max(this.lines.length, 1)] : this.#span(low, high),
          ...(heat ? { dir: -1 } : {}),
        },
      },
      axes: [
        this.#axis({
          space: (/** @type {any} */ _, /** @type {number} */ _axis, /** @type {number} */ low, /** @type {number} */ high) =>
            timeSpace(high - low) * this.scale,
          size: (/** @type {any} */ _, /** @type {string[] | null} */ texts) => timeSize(texts) * this.scale,
          values: timeTexts,
        }),
        this.#axis(this.#valueAxis()),
      ],
      cursor: {
        sync: { key: "pegel" },
        drag: { x: true, y: false, setScale: false },
        points: { size: 6, width: 1, show: !heat },
        y: false,
      },
      hooks: {
        setSelect: [(/** @type {any} */ plot) => this.#select(plot)],
        setCursor: [(/** @type {any} */ plot) => this.on.point(this.#cursor(plot))],
        drawClear: [(/** @type {any} */ plot) => drawPhases(plot, this.scale)],
        draw: [
          (/** @type {any} */ plot) => {
            if (heat) drawHeat(plot, plot.data[0], this.lines, this.look.max ?? 100);
            drawMarks(plot, this.scale);
          },
        ],
      },
    };
    this.plot = new uPlot(options, data, this.host);
  }

  /** @param {any} plot @returns {import("./tip.js").Cursor | null} */
  #cursor(plot) {
    const { idx, left, top } = plot.cursor;
    if (idx === null || idx === undefined || left < 0) return null;
    const { offsetLeft, clientWidth } = plot.over;
    return { index: idx, left, top, width: clientWidth, offset: offsetLeft, hovered: plot.over.matches(":hover") };
  }

  /** The middle of those rows of a heat map that have space for a label. */
  #rows() {
    const every = Math.ceil((this.lines.length * 16) / (this.height - 40));
    return this.lines.map((_, at) => at + 0.5).filter((_, at) => at % Math.max(every, 1) === 0);
  }

  /** The line at a height in a heat map. @param {number} top */
  rowAt(top) {
    if (!this.look.heat || !this.plot) return null;
    return Math.floor((top / this.plot.over.clientHeight) * this.lines.length);
  }

  /** Draws the chart again, larger. @param {number} scale @returns {Promise<HTMLCanvasElement | null>} */
  async picture(scale) {
    if (!this.plot) return null;
    const host = document.createElement("div");
    const copy = new Chart(host, { ...this.look, height: this.height * scale, scale }, { select() {}, point() {} });
    copy.width = this.plot.width * scale;
    copy.show(this.plot.data[0], this.lines, [this.range[0] * 1000, this.range[1] * 1000]);
    copy.resizer.disconnect();
    // The library draws after the current task.
    await new Promise((drawn) => setTimeout(drawn));
    return host.querySelector("canvas");
  }

  /** @param {object} more */
  #axis(more) {
    const line = colour("grid");
    return {
      stroke: colour("faint-text"),
      font: `${11 * this.scale}${FONT}`,
      grid: { stroke: line, width: this.scale },
      ticks: { stroke: line, width: this.scale, size: 4 * this.scale },
      gap: 4 * this.scale,
      ...more,
    };
  }

  #valueAxis() {
    const { unit, heat } = this.look;
    if (heat) {
      const names = (/** @type {any} */ _, /** @type {number[]} */ rows) =>
        rows.map((row) => this.lines[Math.floor(row)]?.label ?? "");
      return {
        size: 62 * this.scale,
        values: names,
        splits: () => this.#rows(),
        grid: { show: false },
        ticks: { show: false },
      };
    }
    const binary = unit.startsWith("bytes");
    const values = (/** @type {any} */ _, /** @type {number[]} */ splits) =>
      splits.map((split) => number(split, unit));
    return { size: 62 * this.scale, space: 34 * this.scale, values, ...(binary ? { incrs: BINARY_STEPS } : {}) };
  }

  /** @param {number | null} low @param {number | null} high @returns {[number, number]} */
  #span(low, high) {
    const least = this.look.max ?? 0;
    const top = Math.max(high ?? 0, least);
    const bottom = Math.min(low ?? 0, 0);
    if (top === bottom) return [bottom, bottom + 1];
    return [bottom < 0 ? bottom * 1.08 : 0, top === least ? top : top * 1.08];
  }

  /** @param {any} plot */
  #select(plot) {
    const { left, width } = plot.select;
    if (width < 5) return;
    const from = plot.posToVal(left, "x") * 1000;
    const to = plot.posToVal(left + width, "x") * 1000;
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.on.select(from, to);
  }

  destroy() {
    this.resizer.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }
}

/**
 * Stacks each line on those before it.
 * @param {Line[]} lines
 * @returns {Column[]}
 */
function stacked(lines) {
  /** @type {Column | null} */
  let below = null;
  return lines.map(({ data }) => {
    const under = below;
    below = data.map((value, at) =>
      value === null ? (under ? under[at] : null) : value + (under?.[at] ?? 0),
    );
    return below;
  });
}

/** @param {string} paint `#rrggbb` @param {number} share */
function faint(paint, share) {
  return (
    paint +
    Math.round(share * 255)
      .toString(16)
      .padStart(2, "0")
  );
}

/** The height of the time axis: dates are placed below times. @param {string[] | null} texts */
function timeSize(texts) {
  return texts?.some((text) => text.includes("\n")) ? 40 : 26;
}

/** The width of a tick label: times without seconds are shorter. @param {number} span in seconds */
function timeSpace(span) {
  return span > 240 ? 50 : 66;
}

/** @param {any} plot @param {number[]} splits @param {number} _axis @param {number} _space @param {number} step */
function timeTexts(plot, splits, _axis, _space, step) {
  const days = plot.scales.x.max - plot.scales.x.min > 86400 * 0.9;
  let previous = "";
  return splits.map((split) => {
    const date = new Date(split * 1000);
    const text = clock(split * 1000);
    const today = `${date.getMonth() + 1}/${date.getDate()}`;
    const time = step < 60 ? text : text.slice(0, 5);
    const shown =
      days && today !== previous
        ? `${time}\n${date.toLocaleDateString(undefined, { day: "numeric", month: "short" })}`
        : time;
    previous = today;
    return shown;
  });
}
