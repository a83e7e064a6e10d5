// The Programs view: metrics that programs send, and their MPI and system calls that Pegel counts, by job. On a parent,
// counters are summed over all nodes, and other values are means.

import { ask, coverageOf, listEverywhere, scope, status } from "./agent.js";
import { callsPart } from "./calls.js";
import { el, say } from "./dom.js";
import { moment, number, whole } from "./format.js";
import { watch } from "./live.js";
import { mpiPart } from "./mpi.js";
import { isOfNode, parse, textOf } from "./series.js";
import { Table } from "./table.js";

/**
 * @typedef {import("./frame.js").Frame} Frame
 * @typedef {import("./series.js").Series & {type: string, unit: string, doc: string}} Known
 */

const CALLS = /^(mpi|strace)_(hits|size|time|errors)_total$/;
/** The names of what a parent computes over its nodes. */
const REDUCED = /:(sum|min|max|avg|count|p50|p99)$/;
const NO_JOB = "no job";
const JOBS_MAX = 20;
const OWN_MAX = 200;
const NAMES_MAX = 60;
const EVERY_MS = 2e3;

const jobOf = (/** @type {Record<string, string>} */ labels) => labels.jobid ?? labels.job ?? NO_JOB;

/** @param {HTMLElement} main */
export function programsView(main) {
  /** @type {Map<string, {shape: string, element: HTMLElement, dispose: () => void}>} */
  const jobs = new Map();
  const summary = el("p", { class: "facts" });
  const place = el("div", { class: "jobs" });
  const mpi = mpiPart();
  main.append(summary, mpi.element, place);
  let gone = false;
  load();
  const timer = setInterval(() => !document.hidden && load(), 5e3);
  return {
    dispose() {
      gone = true;
      clearInterval(timer);
      mpi.dispose();
      for (const job of jobs.values()) job.dispose();
    },
  };

  async function load() {
    try {
      const [all, facts] = await Promise.all([listEverywhere(4e3), status.get()]);
      if (!gone) show(all, facts);
    } catch (error) {
      say(summary, `Cannot load: ${/** @type {Error} */ (error).message}.`);
    }
  }

  /** @param {any[]} all @param {any} facts */
  function show(all, facts) {
    /** @type {Known[]} */
    const own = all
      .map((each) => ({ ...each, ...parse(each.name) }))
      .filter((each) => !isOfNode(each.name) && !(scope.node && REDUCED.test(each.name)));
    const names = [...new Set(own.map((each) => jobOf(each.labels)))].sort(
      (a, b) =>
        Number(a === NO_JOB) - Number(b === NO_JOB) || a.localeCompare(b, undefined, { numeric: true }),
    );
    for (const [name, job] of jobs) if (!names.includes(name)) drop(name, job);
    if (own.length === 0) return void place.replaceChildren(nothing(facts, summary));
    place.querySelector(".why")?.remove();
    say(
      summary,
      `${whole(own.length)} series of programs${names.length > JOBS_MAX ? `; the first ${JOBS_MAX} of ${names.length} jobs` : ""} · ${originOf(all, facts)}`,
    );
    names.slice(0, JOBS_MAX).forEach((name, at) => {
      const series = own.filter((each) => jobOf(each.labels) === name);
      // Rebuilt only when series appear or disappear, so that open charts are kept.
      const shape = [...new Set(series.map((each) => (CALLS.test(each.name) ? each.name : each.text)))].join("\n");
      const old = jobs.get(name);
      if (old?.shape === shape) return;
      if (old) drop(name, old);
      const job = { shape, ...jobCard(name, series) };
      jobs.set(name, job);
      place.insertBefore(job.element, place.children[at] ?? null);
    });
  }

  /** @param {string} name @param {{element: HTMLElement, dispose: () => void}} job */
  function drop(name, job) {
    job.dispose();
    job.element.remove();
    jobs.delete(name);
  }
}

/** Where the values come from. @param {any[]} all @param {any} facts */
function originOf(all, facts) {
  if (!scope.node) return plural(facts.senders.filter((/** @type {any} */ each) => each.series > 0).length, "sender");
  const { answered, expected } = coverageOf(all) ?? { answered: 0, expected: 0 };
  const nodes = answered === expected ? plural(expected, "node") : `${whole(answered)} of ${plural(expected, "node")}`;
  return `counters: sum over ${nodes}, other values: mean`;
}

/** @param {number} count @param {string} word */
function plural(count, word) {
  return `${whole(count)} ${word}${count === 1 ? "" : "s"}`;
}

/** @param {any} facts @param {Element} summary */
function nothing(facts, summary) {
  say(summary, "No program has sent metrics.");
  const ways = [
    ["pegel run -m -s -- COMMAND", "counts the MPI and system calls of any program"],
    ["pegel push NAME=VALUE", "from any script"],
    ["NAME:1|c", "statsd lines, sent to the agent's statsd address"],
    ["POST /api/put", "points in OpenTSDB's format"],
  ];
  const senders = facts.senders.filter((/** @type {any} */ each) => each.received > 0).length;
  const because =
    facts.level < 1
      ? "The agent runs at level 0, which keeps no metrics of programs."
      : facts.lanes.faults.length > 0
        ? `The agent cannot read all shared memory of programs: ${facts.lanes.faults.join("; ")}.`
      : senders > 0
        ? `${plural(senders, "sender")} sent samples, but there is no live series: the programs ended, or their samples were dropped. See Status.`
        : "The agent is ready to accept metrics; no program has sent any since it started.";
  return el(
    "div",
    { class: "card why" },
    el("h2", { text: "Why is this empty?" }),
    el("p", { text: because }),
    el(
      "dl",
      { class: "ways" },
      ways.flatMap(([way, meaning]) => [
        el("dt", {}, el("code", { text: way })),
        el("dd", { text: meaning }),
      ]),
    ),
  );
}

/** @param {string} name @param {Known[]} series */
function jobCard(name, series) {
  const inJob = (/** @type {Record<string, string>} */ labels) => jobOf(labels) === name;
  /** @type {{dispose: () => void}[]} */
  const parts = [];
  const title = name === NO_JOB ? "Without a job" : `Job ${name}`;
  const launches = series.filter((each) => each.name === "tau_metric_proxy_run_total").length;
  const element = el(
    "section",
    { class: "job" },
    el(
      "h2",
      {},
      title,
      el("small", {
        text: `${whole(series.length)} series${launches > 0 ? ", started with pegel run" : ""}`,
      }),
    ),
  );
  for (const [kind, heading] of [
    ["mpi", "MPI"],
    ["strace", "System calls"],
  ]) {
    if (!series.some((each) => each.name.startsWith(`${kind}_`) && CALLS.test(each.name))) continue;
    const part = callsPart(kind, heading, inJob, scope.node ? ":sum" : "");
    parts.push(part);
    element.append(part.element);
  }
  const own = series.filter((each) => !CALLS.test(each.name) && each.name !== "tau_metric_proxy_run_total");
  if (own.length > 0) {
    const part = ownPart(own);
    parts.push(part);
    element.append(part.element);
  }
  return {
    element,
    dispose() {
      for (const part of parts) part.dispose();
    },
  };
}

/** All other metrics that the job's programs sent. @param {Known[]} series */
function ownPart(series) {
  const shown = series.slice(0, OWN_MAX);
  const table = new Table("Metrics of the programs", ["~series", "type", "#value", "#rate", "last change"]);
  /** @type {Map<string, {value: number | null, rate: number | null, ts: number, entry: import("./live.js").Entry | null}>} */
  const values = new Map(shown.map((each) => [each.text, { value: null, rate: null, ts: 0, entry: null }]));
  const names = [...new Set(shown.map((each) => each.name))].slice(0, NAMES_MAX);
  const more =
    series.length > shown.length
      ? el("p", {
          class: "note",
          text: `and ${whole(series.length - shown.length)} more; search for them in Metrics`,
        })
      : null;
  const links = new Map(
    shown.map((each) => [
      each.text,
      el("a", {
        href: `#/metrics?chart=${encodeURIComponent(each.text)}`,
        title: each.doc || "Show it as a chart",
        text: each.text,
      }),
    ]),
  );
  /** @param {import("./live.js").Entry} entry */
  const meet = (entry) => {
    const known = values.get(entry.text) ?? values.get(textOf(entry.name, entry.labels));
    if (known) known.entry = entry;
  };
  const stop = scope.node ? poll(names, meet, draw) : watch({ patterns: names, meet, tick: draw });
  draw();
  return { element: el("div", { class: "card" }, table.element, more), dispose: stop };

  function draw() {
    table.show(
      shown.map((each) => {
        const state = /** @type {NonNullable<ReturnType<typeof values.get>>} */ (values.get(each.text));
        const { entry } = state;
        if (entry && entry.value !== null && entry.ts > state.ts) {
          if (state.ts > 0 && state.value !== null)
            state.rate = ((entry.value - state.value) / (entry.ts - state.ts)) * 1000;
          state.value = entry.value;
          state.ts = entry.ts;
        }
        const counter = each.type === "counter";
        return {
          key: each.text,
          cells: [
            /** @type {Node} */ (links.get(each.text)),
            each.type,
            number(state.value, each.unit),
            counter && state.rate !== null ? number(state.rate, `${each.unit}/s`) : "",
            state.ts > 0 ? moment(state.ts) : "–",
          ],
        };
      }),
    );
  }
}

/**
 * Asks a parent for values over all nodes; its stream has the series of each node.
 * @param {string[]} names
 * @param {(entry: import("./live.js").Entry) => void} meet
 * @param {() => void} done
 */
function poll(names, meet, done) {
  let isLoading = false;
  const load = async () => {
    if (isLoading || document.hidden) return;
    isLoading = true;
    const answer = await ask("api/v1/values", [["names", names.join()]]).catch(() => []);
    isLoading = false;
    for (const { name, ts, value } of answer) meet({ ...parse(name), value, ts: ts * 1000 });
    done();
  };
  load();
  const timer = setInterval(load, EVERY_MS);
  return () => clearInterval(timer);
}
