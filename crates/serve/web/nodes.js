// The Nodes view of a parent: all nodes below it at a glance, coloured by a figure.

import { ask, coverageOf, listEverywhere, pageOf } from "./agent.js";
import { completed, pick } from "./completion.js";
import { el, say } from "./dom.js";
import { duration, number, whole } from "./format.js";
import {
  byName,
  FIGURES,
  filterOf,
  isConnected,
  middle,
  ORDERS,
  orderOf,
  scaleOf,
  STANDS_OUT,
  STATES,
} from "./node_figures.js";
import { NodeTiles } from "./node_tiles.js";
import { updateUrl, urlState } from "./url_state.js";

/**
 * @typedef {import("./node_figures.js").NodeRow} NodeRow
 * @typedef {import("./node_figures.js").Figure} Figure
 */

const EVERY_MS = 2e3;
const SORT_MS = 10e3;
const NAMES_SHOWN = 8;

/** @param {HTMLElement} main */
export function nodesView(main) {
  const { query } = urlState();
  let figure = query.get("figure") ?? "busy";
  let metric = query.get("metric") ?? "";
  if (!(figure in FIGURES)) figure = "busy";
  let order = query.get("sort") ?? "name";
  if (!(order in ORDERS)) order = "name";
  let gone = false;
  let timer = 0;
  let isLoading = false;
  let loadAgain = false;
  /** @type {{node: string, nodes: NodeRow[]} | null} */
  let answer = null;
  /** @type {Map<string, NodeRow>} */
  let rows = new Map();
  /** The previous values of a counter, for its increase per second. @type {{at: number, values: Map<string, number>}} */
  let before = { at: 0, values: new Map() };
  /** @type {{type: string, unit: string} | null} */
  let family = null;
  let median = NaN;
  /** The order of the tiles. They are sorted again every 10 s at most: tiles that move are hard to click. */
  let sorted = { key: "", at: 0, /** @type {Map<string, number>} */ places: new Map() };

  const counts = el(
    "div",
    { class: "node-counts", role: "group", "aria-label": "Nodes by state" },
    ["", ...STATES, STANDS_OUT].map((key) =>
      el("button", {
        type: "button",
        class: `count-${key.replace(" ", "-")}`,
        "data-count": key,
        on: { click: () => toggleFilter(key) },
      }),
    ),
  );
  const note = el("p", { class: "note", role: "status" });
  const legend = el("div", { class: "node-legend" });
  const figures = Object.entries(FIGURES).map(([key, { title, hint }]) =>
    el("button", { type: "button", "data-figure": key, title: hint, text: title, on: { click: () => choose(key, "") } }),
  );
  const metricInput = el("input", {
    id: "node-metric",
    type: "text",
    value: metric,
    placeholder: "or any metric",
    "aria-label": "Colour by a metric",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    on: {
      change: () => choose(figure, metricInput.value.trim()),
      keydown: (/** @type {KeyboardEvent} */ event) =>
        event.key === "Enter" && choose(figure, metricInput.value.trim()),
    },
  });
  const sortSelect = el(
    "select",
    {
      "aria-label": "Sort by",
      on: { change: () => ((order = sortSelect.value), remember(), draw()) },
    },
    Object.entries(ORDERS).map(([key, text]) =>
      el("option", { value: key, selected: key === order, text: `sorted by ${text}` }),
    ),
  );
  const filterInput = el("input", {
    id: "node-filter",
    type: "search",
    value: query.get("filter") ?? "",
    placeholder: "Filter by name or state",
    "aria-label": "Filter by name or state",
    autocomplete: "off",
    spellcheck: "false",
    on: { input: () => (remember(), draw()) },
  });
  const tiles = new NodeTiles(describe);
  const none = el("p", { class: "empty", hidden: true });
  main.append(
    counts,
    el(
      "div",
      { class: "node-tools" },
      el("div", { class: "group", role: "group", "aria-label": "Colour by" }, figures),
      el("div", { class: "expression-input" }, metricInput, completed(metricInput, completeName)),
      sortSelect,
      filterInput,
    ),
    legend,
    tiles.element,
    none,
    note,
  );
  mark();
  load();
  document.addEventListener("visibilitychange", wake);
  return {
    dispose() {
      gone = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", wake);
      tiles.dispose();
    },
  };

  /** @param {string} newFigure @param {string} newMetric */
  function choose(newFigure, newMetric) {
    if (newFigure === figure && newMetric === metric) return;
    if (newMetric !== metric) before = { at: 0, values: new Map() };
    figure = newFigure;
    metric = newMetric;
    metricInput.value = metric;
    remember();
    mark();
    if (metric) load();
    else draw();
  }

  function remember() {
    updateUrl((parameters) => {
      for (const key of ["figure", "metric", "sort", "filter"]) parameters.delete(key);
      if (figure !== "busy") parameters.set("figure", figure);
      if (metric) parameters.set("metric", metric);
      if (order !== "name") parameters.set("sort", order);
      if (filterInput.value) parameters.set("filter", filterInput.value);
    });
  }

  function mark() {
    for (const button of figures)
      button.setAttribute("aria-pressed", String(!metric && button.dataset.figure === figure));
  }

  function wake() {
    if (!document.hidden) load();
  }

  /** Asks for the nodes, one request at a time; a choice that is made meanwhile is asked for next. */
  async function load() {
    clearTimeout(timer);
    if (isLoading) loadAgain = true;
    if (isLoading || document.hidden || gone) return;
    isLoading = true;
    loadAgain = false;
    const wanted = metric;
    try {
      if (wanted) family = await familyOf(wanted);
      const received = await ask("api/v1/nodes", wanted ? [["metric", wanted]] : []);
      if (!gone && wanted === metric) {
        take(received, wanted);
        draw();
      }
    } catch (error) {
      say(note, `Cannot load the nodes: ${/** @type {Error} */ (error).message}.`);
    }
    isLoading = false;
    if (!gone) timer = setTimeout(load, loadAgain ? 0 : EVERY_MS);
  }

  /** @param {{node: string, nodes: NodeRow[]}} received @param {string} wanted */
  function take(received, wanted) {
    answer = received;
    if (wanted && family?.type === "counter") {
      const at = performance.now();
      const seconds = (at - before.at) / 1000;
      /** @type {Map<string, number>} */
      const values = new Map();
      for (const row of received.nodes) {
        if (typeof row.value !== "number") continue;
        const old = before.values.get(row.node);
        values.set(row.node, row.value);
        row.value = old === undefined || row.value < old ? null : (row.value - old) / seconds;
      }
      before = { at, values };
    }
    rows = new Map(received.nodes.map((row) => [row.node, row]));
  }

  /** What is shown: a figure or a metric. @returns {Figure} */
  function shownFigure() {
    if (!metric) return FIGURES[figure];
    const unit = family?.unit ?? "";
    return { title: metric, unit: family?.type === "counter" ? `${unit}/s` : unit, hint: "" };
  }

  /** @param {NodeRow} row @returns {number | null} */
  function valueOf(row) {
    const value = metric ? row.value : row[figure];
    return typeof value === "number" && isConnected(row) ? value : null;
  }

  function draw() {
    if (!answer) return;
    const { nodes, node } = answer;
    const shown = shownFigure();
    const known = nodes.map(valueOf).filter((value) => value !== null);
    const [low, high] = scaleOf(shown, known);
    median = middle(known);
    drawCounts(nodes);
    drawLegend(shown, low, high, nodes);
    const visible = inOrder(nodes).filter(filterOf(filterInput.value));
    tiles.show(
      visible.map((row) => {
        const value = valueOf(row);
        return {
          node: row.node,
          state: row.state,
          href: hrefOf(row, node),
          share: value === null ? null : (value - low) / (high - low),
          text: value === null ? (row.state === "up" ? "no value" : row.state) : number(value, shown.unit),
          standsOut: row.outliers.length > 0,
        };
      }),
      nodes.length,
    );
    none.hidden = visible.length > 0;
    say(none, nodes.length === 0 ? "No node is connected." : "No node matches the filter.");
    say(note, coverageText(nodes));
  }

  /** @param {NodeRow[]} nodes */
  function inOrder(nodes) {
    const key = `${order} ${figure} ${metric}`;
    const isDue = performance.now() - sorted.at > SORT_MS && !tiles.isInUse();
    if (key !== sorted.key || isDue || nodes.some((row) => !sorted.places.has(row.node))) {
      const rows = [...nodes].sort(orderOf(order, valueOf));
      sorted = { key, at: performance.now(), places: new Map(rows.map((row, at) => [row.node, at])) };
    }
    const place = (/** @type {NodeRow} */ row) => sorted.places.get(row.node) ?? 0;
    return [...nodes].sort((a, b) => place(a) - place(b));
  }

  /** @param {NodeRow[]} nodes */
  function drawCounts(nodes) {
    for (const button of counts.children) {
      const key = button.dataset.count;
      const count = nodes.filter(filterOf(key)).length;
      say(button, `${whole(count)} ${key || (count === 1 ? "node" : "nodes")}`);
      button.hidden = count === 0 && key !== "" && key !== "up";
      button.setAttribute("aria-pressed", String(key !== "" && filterInput.value === key));
    }
  }

  /** Shows only the nodes of a state, or all of them again. @param {string} key */
  function toggleFilter(key) {
    filterInput.value = filterInput.value === key ? "" : key;
    remember();
    draw();
  }

  /** @param {Figure} shown @param {number} low @param {number} high @param {NodeRow[]} nodes */
  function drawLegend(shown, low, high, nodes) {
    const present = new Set(nodes.map((row) => row.state));
    const swatch = (/** @type {string} */ look, /** @type {string} */ sign, /** @type {string} */ text) =>
      el("span", { class: "legend-tile" }, el("i", { class: `tile ${look}`, "data-mark": sign }), text);
    const parts = [
      shown.title,
      number(low, shown.unit),
      number(high, shown.unit),
      Number.isNaN(median) ? "" : number(median, shown.unit),
      [...present].sort().join(),
      String(nodes.some((row) => row.outliers.length > 0)),
      String(nodes.some((row) => valueOf(row) === null && isConnected(row))),
    ];
    const drawn = parts.join("|");
    if (legend.dataset.drawn === drawn) return;
    legend.dataset.drawn = drawn;
    legend.replaceChildren(
      ...[
        el("strong", { text: shown.title, title: shown.hint }),
        el("span", { class: "heat-scale" }, parts[1], el("span", { class: "heat-colours" }), parts[2]),
        parts[3] && el("span", { text: `median ${parts[3]}` }),
        parts[5] === "true" && swatch("stands-out", "", "stands out"),
        present.has("late") && swatch("is-late", "…", "late"),
        present.has("lost") && swatch("is-lost", "×", "lost"),
        present.has("refused") && swatch("is-refused", "⊘", "refused"),
        parts[6] === "true" && swatch("no-value", "", "no value"),
      ].filter((part) => part !== "" && part !== false),
    );
  }

  /** The nodes that did not answer. @param {NodeRow[]} nodes */
  function coverageText(nodes) {
    const coverage = coverageOf(answer);
    const missing = nodes.filter((row) => row.state !== "up").sort(byName);
    const names = missing.slice(0, NAMES_SHOWN).map((row) => `${row.node} (${row.state})`);
    if (missing.length > names.length) names.push(`and ${whole(missing.length - names.length)} more`);
    // A parent knows the figures of its nodes without asking them; only a metric needs their answers.
    const [answered, expected] =
      coverage && metric ? [coverage.answered, coverage.expected] : [nodes.length - missing.length, nodes.length];
    const absent = names.length > 0 ? ` Without: ${names.join(", ")}.` : "";
    return `${whole(answered)} of ${whole(expected)} nodes answered.${absent}`;
  }

  /** The content of the box next to a tile. @param {string} name */
  function describe(name) {
    const row = rows.get(name);
    if (!row) return [];
    const shown = shownFigure();
    const value = valueOf(row);
    const line = (/** @type {string} */ key, /** @type {string} */ text, strong = false) =>
      el(
        "div",
        { class: strong ? "tip-row strong" : "tip-row" },
        el("span", { class: "tip-name", text: key }),
        " ",
        el("span", { text }),
      );
    return [
      el("strong", { text: row.node }),
      line("state", row.state, row.state !== "up"),
      line(shown.title, number(value, shown.unit), true),
      Number.isNaN(median) ? null : line("median", number(median, shown.unit)),
      ...row.outliers.map((each) =>
        line(
          `${each.figure} stands out`,
          `${number(each.value, FIGURES[each.figure]?.unit)}, median ${number(each.median, FIGURES[each.figure]?.unit)}`,
          true,
        ),
      ),
      line("lag", time(row.lag_ms)),
      line("clock", row.clock_offset_ms === null ? "–" : `${row.clock_offset_ms > 0 ? "+" : ""}${row.clock_offset_ms} ms`),
      row.parent ? line("parent", row.parent) : null,
      row.version ? line("version", row.version) : null,
      row.problem ? el("p", { text: row.problem }) : null,
    ].filter((part) => part !== null);
  }
}

/** @param {number | null} millis */
function time(millis) {
  return millis === null || millis === undefined ? "–" : duration(millis);
}

/** The page of a node; null if it cannot be reached now. @param {NodeRow} row @param {string} own the node of this page */
function hrefOf(row, own) {
  if (row.node === own) return "#/overview";
  return isConnected(row) ? pageOf(row.node) : null;
}

/** The type and unit of a metric. @param {string} name */
async function familyOf(name) {
  const all = await listEverywhere(60e3);
  return all.find((/** @type {any} */ each) => each.name.split("{")[0] === name) ?? null;
}

/** Completes names of metrics. @param {string} typed */
async function completeName(typed) {
  if (typed.length < 2) return { candidates: [], length: 0 };
  const all = await listEverywhere(60e3);
  return pick([...new Set(/** @type {string[]} */ (all.map((/** @type {any} */ each) => each.name.split("{")[0])))], typed);
}
