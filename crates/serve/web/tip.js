// The time and the values under the cursor. All charts show the time; the chart under the mouse lists its values.

import { el, say } from "./dom.js";
import { duration, moment, number } from "./format.js";
import { origin } from "./marks.js";
import { lineColour } from "./theme.js";
import { stretch } from "./window.js";

/**
 * @typedef {import("./chart.js").Line} Line
 * @typedef {import("./marks.js").Mark} Mark
 * @typedef {{index: number, left: number, top: number, width: number, offset: number, hovered: boolean}} Cursor
 */

const ROWS_MAX = 14;
const MARKS_MAX = 6;

export class Tip {
  /** @param {HTMLElement} stage the element around the plot */
  constructor(stage) {
    this.time = el("span", { class: "cursor-time", hidden: true });
    this.box = el("div", { class: "tip", hidden: true, role: "status", "aria-live": "off" });
    stage.append(this.time, this.box);
  }

  hide() {
    if (this.time.hidden) return;
    this.time.hidden = true;
    this.box.hidden = true;
  }

  /**
   * @param {Cursor} cursor
   * @param {number} time in seconds
   * @param {Line[]} lines with their values at the cursor
   * @param {{unit: string, stack?: boolean, row: number | null, marks: Mark[]}} look `row` is the line under the
   *   cursor in a heat map
   */
  show(cursor, time, lines, look) {
    const place = cursor.offset + cursor.left;
    this.time.hidden = false;
    say(this.time, moment(time * 1000, stretch.now));
    this.time.style.left = `${Math.min(Math.max(place, 34), cursor.offset + cursor.width - 34)}px`;
    this.box.hidden = !cursor.hovered;
    if (!cursor.hovered) return;
    this.box.replaceChildren(
      el("strong", { text: moment(time * 1000, stretch.now) }),
      ...look.marks.slice(-MARKS_MAX).map(markRow),
      ...this.#rows(cursor.index, lines, look),
    );
    const isRight = cursor.left > cursor.width / 2;
    this.box.style.left = isRight ? "auto" : `${place + 14}px`;
    this.box.style.right = isRight ? `calc(100% - ${place - 14}px)` : "auto";
  }

  /** @param {number} index @param {Line[]} lines @param {{unit: string, stack?: boolean, row: number | null}} look */
  #rows(index, lines, look) {
    const known = lines
      .map((line, at) => ({ ...line, at, value: line.data[index] ?? null }))
      .filter((line) => !line.hidden && line.value !== null);
    const size = (/** @type {{at: number, value: number | null}} */ line) =>
      line.at === look.row ? Infinity : (line.value ?? 0);
    const shown = [...known].sort((a, b) => size(b) - size(a)).slice(0, ROWS_MAX);
    const rows = shown.map((line) => {
      const mark = el("span", { class: "mark" });
      mark.style.backgroundColor = line.colour ?? lineColour(line.at);
      return row(mark, line.label, number(line.value, look.unit), line.at === look.row);
    });
    if (known.length === 0) rows.push(el("p", { text: "no value" }));
    if (known.length > shown.length) rows.push(el("p", { text: `and ${known.length - shown.length} smaller ones` }));
    if (look.stack && known.length > 1) {
      const total = known.reduce((sum, line) => sum + (line.value ?? 0), 0);
      rows.push(row(el("span"), "together", number(total, look.unit), true));
    }
    return rows;
  }
}

/** A mark or a phase at the cursor. @param {Mark} mark */
function markRow(mark) {
  const who = origin(mark);
  const length = mark.end !== null ? duration(mark.end - mark.start) : "running";
  const text = mark.kind === "phase" ? `${mark.text} (${length})` : mark.text;
  return el(
    "div",
    { class: `tip-mark is-${mark.kind}` },
    el("strong", { text }),
    el("span", { class: "note", text: who ? ` ${who}` : "" }),
    mark.notes && el("p", { text: mark.notes }),
  );
}

/** @param {Node} mark @param {string} name @param {string} value @param {boolean} strong */
function row(mark, name, value, strong) {
  return el(
    "div",
    { class: strong ? "tip-row strong" : "tip-row" },
    mark,
    el("span", { class: "tip-name", text: name }),
    el("span", { text: value }),
  );
}
