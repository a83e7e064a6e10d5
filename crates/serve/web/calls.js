// The MPI and system calls of a job: time spent over time, and the calls that take most of it.

import { el, say } from "./dom.js";
import { Feed } from "./feed.js";
import { number } from "./format.js";
import { Panel } from "./panel.js";
import { Table } from "./table.js";

/** @typedef {import("./frame.js").Frame} Frame */

const CALLS_MAX = 15;

/**
 * @param {string} kind
 * @param {string} heading
 * @param {(labels: Record<string, string>) => boolean} where
 */
export function callsPart(kind, heading, where) {
  const label = kind === "mpi" ? "call" : "scall";
  const query = (/** @type {string} */ what) => ({
    name: `${kind}_${what}_total`,
    where,
    rate: true,
    by: [label],
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
    "#time/s",
    "#share",
    "#calls/s",
    "#each",
    "#data",
  ]);
  const share = el("p", { class: "note" });
  const element = el(
    "div",
    { class: "calls" },
    el("div", { class: "panels" }, time.element, bytes.element),
    share,
    table.element,
  );
  const ranks = {
    name: `${kind}_time_total`,
    where,
    rate: true,
    by: ["rank"],
    fold: /** @type {"sum"} */ ("sum"),
    key: "rank",
  };
  const feed = new Feed([query("hits"), query("time"), query("size"), ranks], table.element, {
    width: () => 300,
    draw,
  });
  return {
    element,
    dispose() {
      feed.dispose();
      time.dispose();
      bytes.dispose();
    },
  };

  function draw() {
    const means = ["hits", "time", "size"].map(
      (key) => new Map(feed.frame.lines(key).map((group) => [group.label, mean(group.data)])),
    );
    const calls = [...new Set(means.flatMap((each) => [...each.keys()]))];
    const total = calls.reduce((sum, call) => sum + (means[1].get(call) ?? 0), 0);
    const weight = (/** @type {string} */ call) => means[1].get(call) || (means[0].get(call) ?? 0) * 1e-9;
    calls.sort((a, b) => weight(b) - weight(a));
    const rankLines = feed.frame.lines("rank").filter((group) => group.labels.rank !== "");
    const inside =
      rankLines.length > 0
        ? `${number((total / rankLines.length) * 100, "%")} of the time of ${rankLines.length} ranks was spent in ${heading}`
        : `${heading} ${kind === "mpi" ? "takes" : "take"} the time of ${number(total)} processes`;
    say(
      share,
      total > 0
        ? `${inside}; most of it in ${calls[0]}. Averages over the shown time.`
        : "Averages over the shown time.",
    );
    table.show(
      calls.slice(0, CALLS_MAX).map((call) => {
        const [hits, spent, moved] = means.map((each) => each.get(call) ?? 0);
        return {
          key: call,
          share: total > 0 ? (spent / total) * 100 : 0,
          cells: [
            call,
            number(spent, "seconds/s"),
            total > 0 ? number((spent / total) * 100, "%") : "–",
            number(hits, "/s"),
            hits > 0 ? number(spent / hits, "seconds") : "–",
            moved > 0 ? number(moved, "bytes/s") : "–",
          ],
        };
      }),
      "No calls in the shown time.",
    );
  }
}

/**
 * Returns the largest lines. Their order is fixed when they are loaded, so that colours do not change with every tick.
 * @param {number} count
 * @returns {(frame: Frame) => import("./chart.js").Line[]}
 */
function largestFirst(count) {
  /** @type {WeakMap<Frame, Map<string, number>>} */
  const orders = new WeakMap();
  return (frame) => {
    let order = orders.get(frame);
    if (!order)
      orders.set(frame, (order = new Map(frame.lines().map((group) => [group.id, -mean(group.data)]))));
    const size = (/** @type {{id: string}} */ group) => order.get(group.id) ?? 0;
    const lines = frame.lines().sort((a, b) => size(a) - size(b) || a.label.localeCompare(b.label));
    return lines.slice(0, count).map((group) => ({ label: group.label, data: group.data }));
  };
}

/** @param {import("./frame.js").Column} column */
function mean(column) {
  let sum = 0;
  let count = 0;
  for (const value of column) {
    if (value === null) continue;
    sum += value;
    count += 1;
  }
  return count > 0 ? sum / count : 0;
}
