// A chart with its title, legend and buttons. It loads when it becomes visible, follows the stream, and explains why
// it is empty.

import { list, status } from "./agent.js";
import { Chart } from "./chart.js";
import { el, say } from "./dom.js";
import { PICTURE_RATIO, saveCsv, savePng } from "./download.js";
import { duration, moment, number } from "./format.js";
import { ExpressionFeed } from "./expression_feed.js";
import { Feed } from "./feed.js";
import { marksAt, onMarks } from "./marks.js";
import { lineColour, onTheme } from "./theme.js";
import { Tip } from "./tip.js";
import { bounds, move } from "./window.js";

/**
 * @typedef {import("./frame.js").Query} Query
 * @typedef {import("./frame.js").Frame} Frame
 * @typedef {import("./chart.js").Line} Line
 * @typedef {object} Definition
 * @property {string} title
 * @property {string} unit
 * @property {Query[]} queries
 * @property {string} [expression] in PromQL, instead of queries
 * @property {boolean} [stack]
 * @property {number} [max]
 * @property {boolean} [heat] a heat map instead of lines
 * @property {number} [height]
 * @property {boolean} [wide]
 * @property {string} [collector] the collector whose state explains an empty chart
 * @property {number} [level] that it requires
 * @property {string} [missing] the explanation if there is no such series
 * @property {Record<string, string>} [colours] of lines, by label
 * @property {(frame: Frame) => Line[]} [derive]
 * @property {string} [hint]
 * @property {HTMLElement[]} [tools] further buttons
 */

export class Panel {
  /** @param {Definition} definition */
  constructor(definition) {
    this.definition = definition;
    /** @type {Set<string>} */
    this.hidden = new Set();
    /** @type {import("./tip.js").Cursor | null} */
    this.cursor = null;
    /** @type {Line[]} */
    this.lines = [];
    this.legendShape = "";
    this.element = this.#element();
    this.chart = new Chart(this.plot, definition, {
      select: (from, to) => move(to - from, to),
      point: (cursor) => this.#point(cursor),
    });
    const drawer = {
      width: () => this.plot.clientWidth,
      draw: () => this.draw(),
      slide: () => this.chart.slide(bounds()),
    };
    this.feed = definition.expression
      ? new ExpressionFeed(definition.expression, drawer)
      : new Feed(definition.queries, this.element, drawer);
    this.stopTheme = onTheme(() => this.#recolour());
    this.stopMarks = onMarks(() => this.chart.redraw());
  }

  #element() {
    const { title, hint, wide, heat, tools = [] } = this.definition;
    this.plot = el("div", { class: "plot", role: "img", "aria-label": `${title}: loading` });
    this.legend = el("ul", { class: "legend" });
    this.message = el("p", { class: "message", text: "Loading …" });
    const button = (
      /** @type {string} */ text,
      /** @type {string} */ name,
      /** @type {() => void} */ click,
    ) =>
      el("button", {
        type: "button",
        class: "small",
        text,
        title: name,
        "aria-label": `${title}: ${name}`,
        on: { click },
      });
    this.stage = el("div", { class: "stage" }, this.plot, this.message);
    this.tip = new Tip(this.stage);
    this.plot.style.minHeight = `${this.definition.height ?? 170}px`;
    return el(
      "figure",
      { class: `panel${wide ? " wide" : ""}${heat ? " heat" : ""}` },
      el(
        "figcaption",
        {},
        el("h3", { text: title, title: hint ?? title }),
        el(
          "div",
          { class: "panel-tools" },
          tools,
          button("CSV", "save the values", () => saveCsv(title, this.frame.times, this.lines)),
          button("PNG", "save the image", () => this.#picture()),
        ),
      ),
      this.stage,
      this.legend,
    );
  }

  #recolour() {
    this.chart.shape = "";
    this.legendShape = "";
    this.feed.drawSoon();
  }

  get frame() {
    return this.feed.frame;
  }

  draw() {
    const lines = this.definition.derive ? this.definition.derive(this.frame) : this.#plain();
    lines.forEach((line) => {
      line.hidden = this.hidden.has(line.label);
      line.colour ??= this.definition.colours?.[line.label];
    });
    this.lines = lines;
    const empty = !lines.some((line) => line.data.some((value) => value !== null));
    this.message.hidden = !empty;
    this.element.classList.toggle("is-empty", empty);
    if (empty) {
      this.#explain();
      if (!this.chart.plot) return;
    }
    this.chart.show(this.frame.times, lines, bounds());
    this.#describe();
  }

  /** @returns {Line[]} */
  #plain() {
    const lines = this.frame.lines().map((group) => ({ label: group.label, data: group.data }));
    return lines.sort((a, b) => a.label.localeCompare(b.label, undefined, { numeric: true }));
  }

  #describe() {
    const shape = `${this.lines.map((line) => `${line.label}\t${line.hidden}`).join("\n")}\n${this.frame.leftOut.size}`;
    if (shape !== this.legendShape) {
      this.legendShape = shape;
      this.legend.replaceChildren(
        ...(this.definition.heat ? [heatScale()] : this.lines.map((line, at) => this.#legendItem(line, at))),
      );
      if (this.frame.leftOut.size > 0)
        this.legend.append(
          el("li", {
            class: "more",
            text: `and ${this.frame.leftOut.size} more lines that are not shown; group them, or narrow the selection`,
          }),
        );
      this.plot.setAttribute("aria-label", `${this.definition.title}: ${this.lines.length} lines`);
    }
    this.#values();
  }

  /** @param {Line} line @param {number} at */
  #legendItem(line, at) {
    const mark = el("span", { class: "mark" });
    mark.style.backgroundColor = line.colour ?? lineColour(at);
    const toggle = (/** @type {MouseEvent} */ event) => {
      const others = this.lines.filter((other) => other.label !== line.label);
      if (event.shiftKey || event.ctrlKey || event.metaKey) {
        if (!this.hidden.delete(line.label)) this.hidden.add(line.label);
      } else if (!line.hidden && others.every((other) => other.hidden) && others.length > 0)
        this.hidden.clear();
      else this.hidden = new Set(others.map((other) => other.label));
      this.feed.drawSoon();
    };
    const button = el(
      "button",
      {
        type: "button",
        class: line.hidden ? "off" : "",
        "aria-pressed": String(!line.hidden),
        title: `${line.label}: click to show only this line, Shift-click to hide it`,
        on: { click: toggle },
      },
      mark,
      el("span", { class: "name", text: line.label }),
      el("span", { class: "value" }),
    );
    return el("li", {}, button);
  }

  #values() {
    this.#tip();
    const values = this.legend.querySelectorAll(".value");
    const at = (/** @type {Line} */ line) =>
      this.cursor === null ? line.data.findLast((each) => each !== null) : line.data[this.cursor.index];
    if (this.definition.heat) return say(values[0], this.#busiest(at));
    this.lines.forEach((line, index) => {
      if (values[index]) say(values[index], number(at(line), this.definition.unit));
    });
  }

  #tip() {
    const time = this.cursor && this.frame.times[this.cursor.index];
    if (!this.cursor || !time) return this.tip.hide();
    const row = this.chart.rowAt(this.cursor.top);
    const marks = marksAt(time * 1000, this.cursor.width);
    this.tip.show(this.cursor, time, this.lines, { ...this.definition, row, marks });
  }

  /** Describes a heat map in numbers. @param {(line: Line) => number | null | undefined} at */
  #busiest(at) {
    const values = this.lines.map((line) => ({ label: line.label, value: at(line) ?? 0 }));
    const mean = values.reduce((sum, each) => sum + each.value, 0) / Math.max(values.length, 1);
    const most = values.sort((a, b) => b.value - a.value)[0];
    const { unit } = this.definition;
    return most ? `mean ${number(mean, unit)} · highest ${most.label} ${number(most.value, unit)}` : "";
  }

  /** @param {import("./tip.js").Cursor | null} cursor */
  #point(cursor) {
    if (cursor === null && this.cursor === null) return;
    this.cursor = cursor;
    this.#values();
  }

  async #explain() {
    const text = this.feed.failure
      ? `Cannot load: ${this.feed.failure}.`
      : await whyEmpty(this.definition, this.frame);
    say(this.message, text);
    this.plot.setAttribute("aria-label", `${this.definition.title}: ${text}`);
  }

  async #picture() {
    const canvas = await this.chart.picture(PICTURE_RATIO / devicePixelRatio);
    if (canvas) savePng(this.definition.title, canvas, this.lines, this.definition.unit, bounds());
  }

  dispose() {
    this.feed.dispose();
    this.stopTheme();
    this.stopMarks();
    this.chart.destroy();
    this.element.remove();
  }
}

/** The colours of a heat map. */
function heatScale() {
  return el(
    "li",
    { class: "heat-scale" },
    el("span", { text: "0 %" }),
    el("span", { class: "heat-colours" }),
    el("span", { text: "100 %" }),
    el("span", { class: "value" }),
  );
}

/**
 * @param {Definition} definition
 * @param {Frame} frame
 */
async function whyEmpty(definition, frame) {
  const [from, to] = bounds();
  try {
    const facts = await status.get();
    const has = (/** @type {(value: number | null) => boolean} */ test) =>
      frame.lines().some((group) => group.data.some(test));
    if (has((value) => value === 0)) return `Nothing in the shown ${duration(to - from)}.`;
    if (frame.groups.size > 0) return "Waiting for a second sample …";
    const oldest = facts.store.oldest;
    if (oldest !== null && to < oldest)
      return `The store's oldest sample is from ${moment(oldest)}, after the shown time.`;
    const collector = facts.collectors.find((/** @type {any} */ each) => each.name === definition.collector);
    const said = collector && explain(collector, definition, facts.level);
    if (said) return said;
    const all = await list.get();
    const exists = all.some((/** @type {any} */ series) =>
      frame.queries.some(({ fits }) => fits(series.name.split("{")[0])),
    );
    if (exists) return `No samples in the shown ${duration(to - from)}.`;
    return definition.missing ?? "This node has no such series.";
  } catch (error) {
    return `Cannot load: ${error instanceof Error ? error.message : error}.`;
  }
}

/**
 * @param {any} collector
 * @param {Definition} definition
 * @param {number} level
 */
export function explain(collector, definition, level) {
  switch (collector.state) {
    case "absent":
      return `${definition.missing ?? "Not on this node."}${collector.looked_for ? ` Looked for ${collector.looked_for}.` : ""}`;
    case "failed":
      return `The collector ${collector.name} fails: ${collector.error}.`;
    case "disabled":
      if (definition.level && level < definition.level)
        return `Requires level ${definition.level}; the agent runs at level ${level}.`;
      return `The collector ${collector.name} is disabled. To enable it, set collectors: {${collector.name}: {enabled: true}} in the configuration.`;
    default:
      return definition.level && level < definition.level
        ? `Requires level ${definition.level}; the agent runs at level ${level}.`
        : null;
  }
}
