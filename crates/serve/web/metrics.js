// The Metrics view: all series by name; chosen ones become charts. The choice is part of the URL.

import { list, status } from "./agent.js";
import { ALL, choice, EACH, read, written } from "./choice.js";
import { completed } from "./completion.js";
import { el, say } from "./dom.js";
import { cardinality, familiesOf } from "./families.js";
import { whole } from "./format.js";
import { Panel } from "./panel.js";
import { updateUrl, urlState } from "./url_state.js";
import { isOfNode, parse } from "./series.js";
import { Table } from "./table.js";
/** @typedef {import("./choice.js").Choice} Choice */
/** @typedef {import("./families.js").Family} Family */

const RESULTS_MAX = 80;
const CHARTS_MAX = 12;

/** @param {HTMLElement} main */
export function metricsView(main) {
  /** @type {Map<string, Family>} */
  let families = new Map();
  /** @type {Map<Choice, Panel>} */
  const panels = new Map();
  let gone = false;

  const search = el("input", {
    id: "search",
    type: "search",
    placeholder: "Search names, labels and descriptions",
    "aria-label": "Search metrics",
    autocomplete: "off",
    spellcheck: "false",
    on: { input: () => find(), keydown: enter },
  });
  const found = el("p", { class: "note", role: "status" });
  const results = el("ul", { class: "results" });
  const charts = el("div", { class: "panels" });
  const hint = el("p", {
    class: "empty",
    text: "No charts yet: choose a metric from the list. Charts are part of the page's address, so a bookmark keeps them.",
  });
  const expression = el("input", {
    id: "expression",
    type: "text",
    placeholder: "PromQL: sum by (mode) (rate(node_cpu_seconds_total[1m]))",
    "aria-label": "PromQL expression",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
  });
  const form = el(
    "form",
    {
      class: "expression card",
      on: {
        submit: (/** @type {Event} */ event) => {
          event.preventDefault();
          const text = expression.value.trim();
          if (text) add({ ...choice(text), promql: true });
        },
      },
    },
    el("div", { class: "expression-input" }, expression, completed(expression)),
    el("button", { type: "submit", text: "Chart" }),
  );
  const senders = new Table("Series by sender", ["sender", "input", "#series", "#received", "#dropped"]);
  const largest = new Table("Names with the most series", ["~name", "type", "#series", "~labels"]);
  main.append(
    el(
      "div",
      { class: "metrics" },
      el("section", { class: "finder card", "aria-label": "Find" }, search, found, results),
      el(
        "section",
        { class: "chosen", "aria-label": "Charts" },
        form,
        hint,
        charts,
        el(
          "div",
          { class: "pair" },
          el("div", { class: "card" }, senders.element),
          el("div", { class: "card" }, largest.element),
        ),
      ),
    ),
  );
  load();
  const timer = setInterval(() => !document.hidden && load(), 20e3);
  return {
    dispose() {
      gone = true;
      clearInterval(timer);
      removeEventListener("hashchange", restore);
      for (const panel of panels.values()) panel.dispose();
    },
  };

  async function load() {
    try {
      const [all, facts] = await Promise.all([list.get(), status.get()]);
      if (gone) return;
      const first = families.size === 0;
      families = familiesOf(all);
      find();
      cardinality(facts, families, senders, largest);
      if (first) {
        restore();
        addEventListener("hashchange", restore);
      }
    } catch (error) {
      say(found, `Cannot load: ${/** @type {Error} */ (error).message}.`);
    }
  }

  function find() {
    /** @type {string[]} */
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fitting = [...families.values()].filter((family) => {
      const text =
        `${family.name} ${family.doc} ${family.type} ${[...family.labels].map(([key, values]) => `${key} ${[...values].slice(0, 50).join(" ")}`).join(" ")}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const rank = (/** @type {Family} */ family) =>
      words.length > 0 && family.name.toLowerCase().includes(words[0]) ? 0 : 1;
    fitting.sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
    const shown = fitting.slice(0, RESULTS_MAX);
    say(
      found,
      fitting.length === 0
        ? `No metric matches “${search.value}”. The search covers names, labels and descriptions.`
        : `${whole(fitting.length)} of ${whole(families.size)} names${shown.length < fitting.length ? `, the first ${shown.length} shown` : ""}`,
    );
    const focused = document.activeElement?.getAttribute("data-name");
    results.replaceChildren(...shown.map(result));
    if (focused) results.querySelector(`[data-name="${CSS.escape(focused)}"]`)?.focus();
  }

  /** @param {Family} family */
  function result(family) {
    const meaning = family.doc || "No description.";
    return el(
      "li",
      {},
      el(
        "button",
        {
          type: "button",
          "data-name": family.name,
          title: `Chart ${family.name}`,
          on: { click: () => add(choice(family.name)) },
        },
        el("span", { class: "result-name", text: family.name }),
        el("span", { class: "badge", text: `${family.type}${family.unit ? ` · ${family.unit}` : ""}` }),
        el("span", { class: "count", text: whole(family.count), title: `${family.count} series` }),
        el("span", { class: "doc", text: meaning }),
      ),
    );
  }

  /** @param {KeyboardEvent} event */
  function enter(event) {
    if (event.key === "Enter") results.querySelector("button")?.click();
    if (event.key === "ArrowDown") results.querySelector("button")?.focus();
    if (event.key === "Escape") search.blur();
  }

  /** @param {Choice} chosen @param {boolean} [keep] */
  function add(chosen, keep = true) {
    const same = [...panels].find(([other]) => written(other) === written(chosen));
    if (same) return same[1].element.scrollIntoView({ block: "nearest" });
    if (panels.size >= CHARTS_MAX) remove([...panels.keys()][0]);
    const panel = new Panel(definition(chosen));
    panels.set(chosen, panel);
    charts.prepend(panel.element);
    changed(keep);
  }

  /** @param {Choice} chosen */
  function remove(chosen) {
    panels.get(chosen)?.dispose();
    panels.delete(chosen);
    changed(true);
  }

  /** @param {Choice} chosen */
  function replace(chosen) {
    const old = panels.get(chosen);
    if (!old) return;
    const panel = new Panel(definition(chosen));
    old.element.after(panel.element);
    old.dispose();
    panels.set(chosen, panel);
    changed(true);
  }

  /** @param {boolean} keep */
  function changed(keep) {
    hint.hidden = panels.size > 0;
    if (!keep) return;
    updateUrl((query) => {
      query.delete("chart");
      for (const chosen of panels.keys()) query.append("chart", written(chosen));
    });
  }

  /** Restores the charts in the URL, after a link was followed. */
  function restore() {
    if (urlState().view !== "metrics") return;
    const wanted = urlState().query.getAll("chart");
    const there = new Set([...panels.keys()].map(written));
    for (const text of wanted) if (!there.has(text)) add(read(text), false);
    changed(true);
  }

  /** @param {Choice} chosen @returns {import("./panel.js").Definition} */
  function definition(chosen) {
    if (chosen.promql)
      return {
        title: chosen.series,
        unit: "",
        stack: chosen.stack,
        height: 220,
        wide: true,
        queries: [],
        expression: chosen.series,
        missing: "The expression has no result in the shown time.",
        tools: controls(chosen, undefined, false, false),
      };
    const { name, labels } = parse(chosen.series);
    const family = families.get(name);
    const whole_ = !chosen.series.includes("{");
    const rate = chosen.rate ?? family?.type === "counter";
    const by = chosen.by === EACH ? undefined : chosen.by === ALL ? [] : [chosen.by];
    const unit = `${family?.unit ?? ""}${rate ? "/s" : ""}`;
    const where = whole_
      ? undefined
      : (/** @type {any} */ other) => Object.entries(labels).every(([key, value]) => other[key] === value);
    return {
      title: chosen.series,
      unit,
      stack: chosen.stack,
      height: 220,
      wide: true,
      hint: family?.doc,
      missing: family ? undefined : `There is no live series named ${name}.`,
      queries: [
        {
          name,
          pattern: whole_ ? name : chosen.series.replace(/[*?]/g, "?"),
          where,
          rate,
          sparse: rate && chosen.fold === "sum" && !isOfNode(name),
          by,
          fold: chosen.fold,
        },
      ],
      tools: controls(chosen, family, rate, whole_),
    };
  }

  /** @param {Choice} chosen @param {Family | undefined} family @param {boolean} rate @param {boolean} grouped */
  function controls(chosen, family, rate, grouped) {
    const select = (
      /** @type {string} */ name,
      /** @type {string[]} */ options,
      /** @type {string} */ value,
      /** @type {(value: string) => void} */ set,
    ) => {
      const element = el(
        "select",
        {
          "aria-label": `${chosen.series}: ${name}`,
          title: name,
          on: { change: () => (set(element.value), replace(chosen)) },
        },
        options.map((option) => el("option", { value: option, text: option })),
      );
      element.value = value;
      return element;
    };
    const toggle = (
      /** @type {string} */ text,
      /** @type {boolean} */ value,
      /** @type {(value: boolean) => void} */ set,
    ) =>
      el("button", {
        type: "button",
        class: "small",
        text,
        "aria-pressed": String(value),
        "aria-label": `${chosen.series}: ${text}`,
        on: { click: () => (set(!value), replace(chosen)) },
      });
    const keys = [...(family?.labels.keys() ?? [])].sort();
    return [
      grouped &&
        keys.length > 0 &&
        select("group by", [EACH, ALL, ...keys], chosen.by, (value) => (chosen.by = value)),
      grouped &&
        keys.length > 0 &&
        chosen.by !== EACH &&
        select(
          "of each group",
          ["sum", "avg", "min", "max"],
          chosen.fold,
          (value) => (chosen.fold = /** @type {any} */ (value)),
        ),
      !chosen.promql && toggle("rate", rate, (value) => (chosen.rate = value)),
      toggle("stack", chosen.stack, (value) => (chosen.stack = value)),
      el("button", {
        type: "button",
        class: "small",
        text: "×",
        title: "remove",
        "aria-label": `${chosen.series}: remove`,
        on: { click: () => remove(chosen) },
      }),
    ].filter(Boolean);
  }
}
