// The MPI and system calls of a job: time spent over time, and the calls that take most of it.

import { largestFirst } from "./columns.js";
import { el, say } from "./dom.js";
import { duration, moment, number, whole } from "./format.js";
import { Panel } from "./panel.js";
import { Table } from "./table.js";
import { Totals } from "./totals.js";
import { isLive, onMove, stretch } from "./window.js";

const CALLS_SHOWN = 15;
/** Linux has fewer than 500 system calls, MPI about as many functions. */
const CALLS_MAX = 1024;
const EVERY_MS = 3e3;

/**
 * @param {string} kind
 * @param {string} heading
 * @param {(labels: Record<string, string>) => boolean} where
 * @param {string} ending of the names: a parent stores sums over its nodes under names of their own
 */
export function callsPart(kind, heading, where, ending = "") {
  const label = kind === "mpi" ? "call" : "scall";
  const query = (/** @type {string} */ what) => ({
    name: `${kind}_${what}_total${ending}`,
    where,
    rate: true,
    sparse: true,
    by: [label],
    most: CALLS_MAX,
    fold: /** @type {"sum"} */ ("sum"),
    key: what,
  });
  const top = largestFirst(10);
  const time = new Panel({
    title: `${heading}: time in calls`,
    unit: "seconds/s",
    stack: true,
    queries: [query("time")],
    derive: top,
    missing: "Times are not measured here, only calls and bytes.",
    hint: "Seconds per second: 2 means that two processes were in calls all the time",
  });
  const bytes = new Panel({
    title: kind === "mpi" ? "MPI: data" : "Input and output",
    unit: "bytes/s",
    stack: true,
    queries: [query("size")],
    derive: top,
    missing: "No call has transferred data yet.",
  });
  const table = new Table(`${heading}: calls, by time`, [
    label === "call" ? "call" : "system call",
    "#time",
    "#share",
    "#calls",
    "#errors",
    "#each",
    "#data",
    "#time/s",
    "#calls/s",
  ]);
  const note = el("p", { class: "note" });
  const all = el("button", {
    type: "button",
    class: "show-all",
    hidden: true,
    on: { click: () => ((expanded = !expanded), draw()) },
  });
  const element = el(
    "div",
    { class: "calls" },
    el("div", { class: "panels" }, time.element, bytes.element),
    note,
    el("div", { class: "card" }, table.element, all),
  );
  const totals = new Totals(["hits", "time", "size", "errors"].map((what) => `${kind}_${what}_total${ending}`));
  /** @type {import("./totals.js").Increases | null} */
  let known = null;
  let expanded = false;
  let gone = false;
  let loading = 0;
  const stop = onMove(load);
  const timer = setInterval(() => !document.hidden && isLive() && load(), EVERY_MS);
  load();
  return {
    element,
    dispose() {
      gone = true;
      stop();
      clearInterval(timer);
      time.dispose();
      bytes.dispose();
    },
  };

  async function load() {
    const mine = (loading += 1);
    try {
      const loaded = await totals.load();
      if (gone || mine !== loading) return;
      known = loaded;
      draw();
    } catch (error) {
      if (!gone) say(note, `Cannot load: ${/** @type {Error} */ (error).message}.`);
    }
  }

  function draw() {
    if (!known) return;
    const mine = known.series.filter((each) => where(each.labels));
    const calls = callsOf(mine, kind, label);
    const total = calls.reduce((sum, call) => sum + call.time, 0);
    const seconds = Math.max((known.to - known.from) / 1000, 1e-3);
    const ranks = new Set(mine.map((each) => each.labels.rank).filter(Boolean)).size;
    const inside =
      ranks > 0
        ? `${number((total / seconds / ranks) * 100, "%")} of the time of ${ranks} ranks was spent in ${heading}`
        : `${number(total, "seconds")} in ${heading}`;
    say(
      note,
      `${total > 0 ? `${inside}, most of it in ${calls[0].call}. ` : ""}The table covers ${duration(known.to - known.from)} until ${moment(known.to, stretch.now)}: rates are means over this time.`,
    );
    const shown = expanded ? calls : calls.slice(0, CALLS_SHOWN);
    all.hidden = calls.length <= CALLS_SHOWN;
    say(all, expanded ? `Show the first ${CALLS_SHOWN} only` : `Show all ${calls.length} calls`);
    all.setAttribute("aria-expanded", String(expanded));
    table.show(
      shown.map(({ call, hits, time: spent, size, errors }) => ({
        key: call,
        share: total > 0 ? (spent / total) * 100 : 0,
        cells: [
          call,
          spent > 0 ? number(spent, "seconds") : "–",
          total > 0 ? number((spent / total) * 100, "%") : "–",
          whole(hits),
          errors > 0 ? whole(errors) : "–",
          hits > 0 && spent > 0 ? number(spent / hits, "seconds") : "–",
          size > 0 ? number(size, "bytes") : "–",
          spent > 0 ? number(spent / seconds, "seconds/s") : "–",
          number(hits / seconds, "/s"),
        ],
      })),
      "No calls in the shown time.",
    );
  }
}

/**
 * Returns calls with their increases, those that took most time first.
 * @param {import("./totals.js").Increase[]} series
 * @param {string} kind
 * @param {string} label
 */
function callsOf(series, kind, label) {
  /** @type {Map<string, {call: string, hits: number, time: number, size: number, errors: number}>} */
  const calls = new Map();
  for (const { name, labels, increase } of series) {
    const call = labels[label] ?? "";
    const sums = calls.get(call) ?? { call, hits: 0, time: 0, size: 0, errors: 0 };
    const what = name.slice(kind.length + 1, name.lastIndexOf("_total"));
    if (what === "hits" || what === "time" || what === "size" || what === "errors") sums[what] += increase;
    calls.set(call, sums);
  }
  return [...calls.values()]
    .filter((call) => call.hits > 0 || call.time > 0 || call.size > 0)
    .sort((a, b) => b.time - a.time || b.hits - a.hits || a.call.localeCompare(b.call));
}
