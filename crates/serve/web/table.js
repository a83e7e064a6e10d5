// Tables whose values change: a row is created once and keeps its cells.

import { el, say } from "./dom.js";

/**
 * @typedef {string | number | Node} Cell
 * @typedef {{key: string, cells: Cell[], share?: number, class?: string}} Row
 */

export class Table {
  /**
   * @param {string} caption
   * @param {string[]} heads those that begin with `#` are columns of numbers, those with `~` of long texts
   */
  constructor(caption, heads) {
    this.heads = heads;
    this.body = el("tbody");
    this.empty = el("p", { class: "empty", hidden: true });
    this.titles = heads.map((head) =>
      el("th", { scope: "col", class: kind(head), text: head.replace(/^[#~]/, "") }),
    );
    this.table = el(
      "table",
      {},
      el("caption", { text: caption }),
      el("thead", {}, el("tr", {}, this.titles)),
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
   * Turns titles into buttons that select the order of the rows.
   * @param {(string | undefined)[]} keys of the columns; without one, a column is no order
   * @param {string} current
   * @param {(key: string) => void} choose
   */
  sortable(keys, current, choose) {
    keys.forEach((key, at) => {
      if (!key) return;
      const title = this.titles[at];
      const text = title.textContent;
      title.replaceChildren(
        el("button", {
          type: "button",
          class: "order",
          text: key === current ? `${text} ▾` : text,
          title: `Sort by ${text}`,
          on: { click: () => choose(key) },
        }),
      );
      if (key === current) title.setAttribute("aria-sort", "descending");
    });
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
          this.heads.map((head) => el("td", { class: kind(head) })),
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

/** The class of a column. @param {string} head */
function kind(head) {
  return head.startsWith("#") ? "number" : head.startsWith("~") ? "long" : "";
}

/** @param {Element} place @param {Cell} cell */
function put(place, cell) {
  if (!(cell instanceof Node)) return place.className === "long" ? sayLong(place, String(cell)) : say(place, String(cell));
  if (place.textContent !== cell.textContent || place.children.length === 0) place.replaceChildren(cell);
}

/** Sets a text that may be broken after the separators of names and paths, rather than within a word. @param {Element} place @param {string} text */
function sayLong(place, text) {
  if (place.textContent === text) return;
  const parts = text.split(/(?<=[_/.,{:])/);
  place.replaceChildren(...parts.flatMap((part, at) => (at > 0 ? [el("wbr"), part] : [part])));
}
