// The Status view: the agent itself. Collectors and their state, cost, dropped samples, and the configuration.

import { ask, status } from "./agent.js";
import { el, say } from "./dom.js";
import { duration, moment, number, whole } from "./format.js";
import { Panel } from "./panel.js";
import { Table } from "./table.js";

const EVERY_MS = 5e3;
const ORDER = { failed: 0, active: 1, disabled: 2, absent: 3 };
const percent = (/** @type {number} */ value) => value * 100;

/** @type {import("./panel.js").Definition[]} */
const COST = [
  {
    title: "Processor time of the agent",
    unit: "%",
    queries: [
      { name: "pegel_cpu_seconds_total", rate: true, by: [], label: "of one processor", map: percent },
    ],
  },
  {
    title: "Memory of the agent",
    unit: "bytes",
    queries: [
      { name: "pegel_resident_memory_bytes", by: [], label: "resident" },
      { name: "pegel_store_memory_bytes", by: [], label: "samples and series" },
    ],
  },
  {
    title: "Samples",
    unit: "/s",
    queries: [
      { name: "pegel_kept_total", rate: true, by: ["input"], label: "kept, $input" },
      { name: "pegel_dropped_total", rate: true, by: [], label: "dropped" },
    ],
  },
];

/** @param {HTMLElement} main */
export function statusView(main) {
  const facts = el("p", { class: "facts" });
  const panels = COST.map((definition) => new Panel(definition));
  const filter = el(
    "select",
    { "aria-label": "Which collectors", on: { change: () => show() } },
    ["all", "active", "failed", "disabled", "absent"].map((option) =>
      el("option", { value: option, text: option }),
    ),
  );
  const counts = el("span", { class: "note" });
  const collectors = new Table("Collectors", ["collector", "state", "~why", "#series", "#cost", "#failures"]);
  const drops = new Table("Received and dropped samples", [
    "input",
    "#received",
    "#kept",
    "#dropped",
    "~reasons",
  ]);
  const senders = new Table("Senders", ["sender", "input", "#series", "#received", "#dropped", "~reasons"]);
  const store = new Table("Store", ["property", "~value"]);
  const http = new Table("Connections and refusals", ["event", "#count"]);
  const config = new Table("Configuration in force", ["key", "~value", "~from"]);
  main.append(
    facts,
    el(
      "div",
      { class: "panels three" },
      panels.map((panel) => panel.element),
    ),
    el("section", { class: "card" }, el("div", { class: "card-tools" }, counts, filter), collectors.element),
    el(
      "section",
      { class: "pair" },
      el("div", { class: "card" }, drops.element),
      el("div", { class: "card" }, senders.element),
    ),
    el(
      "section",
      { class: "pair" },
      el("div", { class: "card" }, store.element),
      el("div", { class: "card" }, http.element),
    ),
    el("section", { class: "card" }, config.element),
  );
  /** @type {any} */
  let known = null;
  let gone = false;
  load();
  const timer = setInterval(() => !document.hidden && load(), EVERY_MS);
  ask("api/v1/config").then(
    (keys) =>
      gone ||
      config.show(
        keys.map((/** @type {any} */ each) => ({
          key: each.key,
          cells: [each.key, each.value, each.place],
          class: each.place === "default" ? "faint" : "",
        })),
        "The agent reports no configuration.",
      ),
    (error) => config.show([], `Cannot load: ${error.message}.`),
  );
  return {
    dispose() {
      gone = true;
      clearInterval(timer);
      for (const panel of panels) panel.dispose();
    },
  };

  async function load() {
    try {
      known = await status.get(EVERY_MS - 500);
      if (!gone) show();
    } catch (error) {
      say(facts, `The agent does not respond: ${/** @type {Error} */ (error).message}.`);
    }
  }

  function show() {
    if (!known) return;
    const degraded = known.degraded ? ` · degraded: ${known.store.degraded?.reason ?? "see below"}` : "";
    say(
      facts,
      `Pegel ${known.version} · process ${known.pid} · started ${moment(known.started)} · level ${known.level} · a sample every ${number(known.rate, "seconds")}${degraded}`,
    );
    showCollectors();
    drops.show(
      known.inputs
        .filter((/** @type {any} */ each) => each.received > 0)
        .map((/** @type {any} */ each) => ({
          key: each.input,
          cells: [
            each.input,
            whole(each.received),
            whole(each.kept),
            whole(total(each.dropped)),
            reasons(each.dropped),
          ],
          class: total(each.dropped) > 0 ? "warm" : "",
        })),
      "No samples received yet.",
    );
    senders.show(
      known.senders.map((/** @type {any} */ each) => ({
        key: `${each.input} ${each.sender}`,
        cells: [
          each.sender,
          each.input,
          whole(each.series),
          whole(each.received),
          whole(total(each.dropped)),
          reasons(each.dropped),
        ],
        class: total(each.dropped) > 0 ? "warm" : "",
      })),
      "No program has sent samples since the agent started.",
    );
    store.show(storeFacts(known).map(([what, value]) => ({ key: what, cells: [what, value] })));
    const refused = Object.entries(known.http.refused).filter(([, count]) => Number(count) > 0);
    http.show(
      [
        ["connections", known.http.connections],
        ["connections on the socket", known.http.socket_connections],
        ...refused.map(([reason, count]) => [`refused: ${reason.replaceAll("_", " ")}`, count]),
        ["series omitted from /metrics", known.http.name_collisions],
      ].map(([what, count]) => ({ key: String(what), cells: [String(what), whole(Number(count))] })),
    );
  }

  function showCollectors() {
    const all = [...known.collectors].sort(
      (a, b) =>
        /** @type {any} */ (ORDER)[a.state] - /** @type {any} */ (ORDER)[b.state] ||
        b.cost * b.series - a.cost * a.series,
    );
    const shown = all.filter((each) => filter.value === "all" || each.state === filter.value);
    const number_ = (/** @type {string} */ state) => all.filter((each) => each.state === state).length;
    say(
      counts,
      Object.keys(ORDER)
        .map((state) => `${number_(state)} ${state}`)
        .join(" · "),
    );
    collectors.show(
      shown.map((each) => ({
        key: each.name,
        cells: [
          each.name,
          badge(each.state),
          why(each),
          each.state === "active" ? whole(each.series) : "",
          each.cost > 0 ? number(each.cost, "seconds") : "",
          each.failures > 0 ? whole(each.failures) : "",
        ],
        class: each.state === "active" || each.state === "failed" ? "" : "faint",
      })),
      `No collector is ${filter.value}.`,
    );
  }
}

/** @param {string} state */
function badge(state) {
  return el("span", { class: `badge is-${state}`, text: state });
}

/** @param {any} collector */
function why(collector) {
  if (collector.error) return collector.error;
  if (collector.state === "absent")
    return collector.looked_for ? `not on this node: looked for ${collector.looked_for}` : "not on this node";
  if (collector.state === "disabled") return "disabled, or above the agent's level";
  return "";
}

/** @param {Record<string, number>} dropped */
function total(dropped) {
  return Object.values(dropped).reduce((sum, count) => sum + count, 0);
}

/** @param {Record<string, number>} dropped */
function reasons(dropped) {
  const happened = Object.entries(dropped).filter(([, count]) => count > 0);
  return (
    happened.map(([reason, count]) => `${reason.replaceAll("_", " ")} ${whole(count)}`).join(", ") || "–"
  );
}

/** @param {any} known @returns {[string, string][]} */
function storeFacts({ store, limits, sampling }) {
  return [
    ["directory", store.dir],
    ["series", `${whole(store.series)}${limits ? ` of ${whole(limits.series)}` : ""}`],
    [
      "memory",
      `${number(store.memory_bytes, "bytes")}${limits ? ` of ${number(limits.memory_bytes, "bytes")}` : ""}`,
    ],
    [
      "on disk",
      `${number(store.block_bytes + store.log_bytes, "bytes")} in ${store.blocks} blocks and the log${limits ? `, of ${number(limits.disk_bytes, "bytes")}` : ""}`,
    ],
    [
      "history",
      store.oldest === null
        ? "none yet"
        : `${duration(store.newest - store.oldest)}, since ${moment(store.oldest)}`,
    ],
    ["duplicate, out of order", `${whole(store.duplicates)}, ${whole(store.out_of_order)}`],
    ["set aside", store.set_aside.length > 0 ? store.set_aside.join(", ") : "nothing"],
    ...(sampling
      ? [
          /** @type {[string, string]} */ ([
            "ticks late, missed",
            `${whole(sampling.late)}, ${whole(sampling.missed)}`,
          ]),
        ]
      : []),
  ];
}
