// Tables whose values change: a row is created once and keeps its cells.

import { el, say } from "./dom.js";

/**
 * @typedef {string | number | Node} Cell
 * @typedef {{key: string, cells: Cell[], share?: number, class?: string}} Row
 */

export class Table {
  /**
   * @param {string} caption
   * @param {string[]} heads those that begin with `#` are columns of numbers
   */
  constructor(caption, heads) {
    this.heads = heads;
    this.body = el("tbody");
    this.empty = el("p", { class: "empty", hidden: true });
    const titles = heads.map((head) =>
      el("th", { scope: "col", class: head.startsWith("#") ? "number" : "", text: head.replace(/^#/, "") }),
    );
    this.table = el(
      "table",
      {},
      el("caption", { text: caption }),
      el("thead", {}, el("tr", {}, titles)),
      this.body,
    );
    this.element = el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      this.table,
      this.empty,
    );
    /** @type {Map<string, any>} */
    this.rows = new Map();
  }

  /**
   * @param {Row[]} rows
   * @param {string} [why] the text if there are no rows
   */
  show(rows, why = "None.") {
    this.empty.hidden = rows.length > 0;
    this.table.hidden = rows.length === 0;
    say(this.empty, rows.length > 0 ? "" : why);
    const wanted = new Set(rows.map((row) => row.key));
    for (const [key, element] of this.rows) {
      if (wanted.has(key)) continue;
      element.remove();
      this.rows.delete(key);
    }
    rows.forEach((row, at) => {
      let element = this.rows.get(row.key);
      if (!element) {
        element = el(
          "tr",
          {},
          this.heads.map((head) => el("td", { class: head.startsWith("#") ? "number" : "" })),
        );
        this.rows.set(row.key, element);
      }
      if (this.body.children[at] !== element) this.body.insertBefore(element, this.body.children[at] ?? null);
      element.className = row.class ?? "";
      row.cells.forEach((cell, index) => put(element.children[index], cell));
      if (row.share !== undefined)
        element.style.setProperty("--share", `${Math.min(Math.max(row.share, 0), 100).toFixed(1)}%`);
      element.classList.toggle("shared", row.share !== undefined);
    });
  }
}

/** @param {Element} place @param {Cell} cell */
function put(place, cell) {
  if (!(cell instanceof Node)) return say(place, String(cell));
  if (place.textContent !== cell.textContent || place.children.length === 0) place.replaceChildren(cell);
}
