// The Processes view: the processes, users, cgroups and jobs that use most of the node, and their history.

import { address, ask } from "./agent.js";
import { largestFirst } from "./columns.js";
import { el, say } from "./dom.js";
import { duration, number, whole } from "./format.js";
import { Panel } from "./panel.js";
import { textOf } from "./series.js";
import { Table } from "./table.js";
import { updateUrl, urlState } from "./url_state.js";

/**
 * @typedef {Record<string, any>} Process a row of the agent's answer, see docs/protocols.md
 * @typedef {{head: string, sort?: string, cell: (row: Process, now: number) => import("./table.js").Cell, only?: string[]}} ProcessColumn
 */

const GROUPINGS = { process: "Processes", user: "Users", cgroup: "Control groups", job: "Jobs" };
const ROWS = 20;
const ROWS_MAX = 500;
const EVERY_MIN_MS = 2e3;
const LINES = 8;

const bytes = (/** @type {number | null | undefined} */ value, unit = "bytes") =>
  value === null || value === undefined ? "–" : value === 0 ? "0" : number(value, unit);
const share = (/** @type {number} */ cores) => number(cores * 100, "%");

/** @type {ProcessColumn[]} */
const COLUMNS = [
  { head: "~process", cell: nameCell, only: ["process"] },
  { head: "~user", cell: (row) => row.user ?? "–", only: ["user"] },
  { head: "~control group", cell: (row) => row.cgroup ?? "–", only: ["cgroup"] },
  { head: "~job", cell: (row) => row.job ?? "no job", only: ["job"] },
  { head: "#processes", cell: (row) => whole(row.processes ?? 0), only: ["user", "cgroup", "job"] },
  { head: "#pid", cell: (row) => String(row.pid), only: ["process"] },
  { head: "user", cell: (row) => row.user ?? String(row.uid ?? "–"), only: ["process"] },
  { head: "#CPU", sort: "cpu", cell: (row) => share(row.cpu ?? 0) },
  { head: "#memory", sort: "memory", cell: (row) => bytes(row.memory) },
  { head: "#read", sort: "read", cell: (row) => bytes(row.read, "bytes/s") },
  { head: "#write", sort: "write", cell: (row) => bytes(row.write, "bytes/s") },
  { head: "#GPU memory", sort: "gpu", cell: (row) => bytes(row.gpu_memory) },
  { head: "#threads", sort: "threads", cell: (row) => whole(row.threads ?? 0) },
  { head: "state", cell: (row) => STATES[row.state] ?? row.state ?? "–", only: ["process"] },
  { head: "#age", cell: (row, now) => duration(now - row.started * 1000), only: ["process"] },
  { head: "job", cell: (row) => row.job ?? "–", only: ["process"] },
];

/** @type {Record<string, string>} */
const STATES = { R: "running", S: "sleeping", D: "waiting", Z: "zombie", T: "stopped", t: "traced", I: "idle" };

/** @type {import("./panel.js").Definition[]} */
const HISTORY = [
  {
    title: "Processor time of processes",
    unit: "%",
    collector: "top_processes",
    stack: true,
    hint: "100 % is one processor",
    queries: [
      { ...series("cpu_seconds_total"), rate: true, map: (/** @type {number} */ value) => value * 100 },
    ],
  },
  {
    title: "Memory of processes",
    unit: "bytes",
    collector: "top_processes",
    stack: true,
    queries: [series("resident_memory_bytes")],
  },
  {
    title: "Read and written by processes",
    unit: "bytes/s",
    collector: "top_processes",
    missing: "The agent may not read the I/O of other users' processes: see pegel doctor.",
    queries: [
      { ...series("read_bytes_total"), rate: true, label: "$comm $pid read" },
      { ...series("written_bytes_total"), rate: true, label: "$comm $pid write" },
    ],
  },
];

/** @param {string} what */
function series(what) {
  return { name: `node_process_${what}`, by: ["comm", "pid"], label: "$comm $pid", most: 512 };
}

/** @param {HTMLElement} main */
export function processesView(main) {
  const { query } = urlState();
  let by = query.get("by") ?? "process";
  if (!(by in GROUPINGS)) by = "process";
  let sort = query.get("sort") ?? "cpu";
  let limit = ROWS;
  let gone = false;
  let loading = 0;
  let timer = 0;
  const panels = HISTORY.map(
    (definition) => new Panel({ ...definition, derive: largestFirst(LINES, false), level: 3 }),
  );
  const note = el("p", { class: "note", role: "status" });
  const more = el("button", {
    type: "button",
    class: "show-all",
    hidden: true,
    text: `Show up to ${ROWS_MAX}`,
    on: { click: () => ((limit = ROWS_MAX), load()) },
  });
  const groupings = Object.entries(GROUPINGS).map(([key, text]) =>
    el("button", { type: "button", "data-by": key, text, on: { click: () => choose(key, sort) } }),
  );
  const card = el("section", { class: "card processes" });
  /** @type {Table} */
  let table;
  main.append(
    el("div", { class: "card-tools" }, el("div", { class: "group", role: "group", "aria-label": "Group by" }, groupings), note),
    card,
    el(
      "section",
      { class: "panels history" },
      panels.map((panel) => panel.element),
    ),
  );
  build();
  load();
  return {
    dispose() {
      gone = true;
      clearTimeout(timer);
      for (const panel of panels) panel.dispose();
    },
  };

  function columns() {
    return COLUMNS.filter((column) => !column.only || column.only.includes(by));
  }

  function build() {
    const shown = columns();
    table = new Table(
      GROUPINGS[/** @type {keyof typeof GROUPINGS} */ (by)],
      shown.map((column) => column.head),
    );
    table.sortable(
      shown.map((column) => column.sort),
      sort,
      (chosen) => choose(by, chosen),
    );
    card.replaceChildren(table.element, more);
    for (const button of groupings) button.setAttribute("aria-pressed", String(button.dataset.by === by));
  }

  /** @param {string} newBy @param {string} newSort */
  function choose(newBy, newSort) {
    if (newBy !== by) limit = ROWS;
    by = newBy;
    sort = newSort;
    updateUrl((parameters) => {
      parameters.set("by", by);
      parameters.set("sort", sort);
    });
    build();
    load();
  }

  async function load() {
    clearTimeout(timer);
    const mine = (loading += 1);
    let wait = 5e3;
    try {
      if (!document.hidden) {
        const answer = await ask("api/v1/processes", [
          ["by", by],
          ["sort", sort],
          ["limit", String(limit)],
        ]);
        if (gone || mine !== loading) return;
        show(answer);
        wait = Math.max(answer.interval * 1000, EVERY_MIN_MS);
      }
    } catch (error) {
      if (gone || mine !== loading) return;
      // The agent has just started.
      if (/** @type {any} */ (error).status === 503) wait = 1e3;
      say(note, "");
      table.show([], `Cannot list processes: ${/** @type {Error} */ (error).message}.`);
      more.hidden = true;
    }
    timer = setTimeout(load, wait);
  }

  /** @param {{time: number, interval: number, total: number, rows: Process[]}} answer */
  function show({ time, interval, total, rows }) {
    const shown = columns();
    const measure = (/** @type {Process} */ row) =>
      sort === "io" ? (row.read ?? 0) + (row.write ?? 0) : (row[sort === "gpu" ? "gpu_memory" : sort] ?? 0);
    const most = Math.max(...rows.map(measure), 1e-9);
    say(
      note,
      `${whole(rows.length)} of ${whole(total)} ${GROUPINGS[/** @type {keyof typeof GROUPINGS} */ (by)].toLowerCase()} · means over ${number(interval, "seconds")} · CPU: 100 % is one processor`,
    );
    more.hidden = rows.length >= total || rows.length >= ROWS_MAX || rows.length < limit;
    table.show(
      rows.map((row) => ({
        key: by === "process" ? `${row.pid} ${row.started}` : String(row[by]),
        cells: shown.map((column) => column.cell(row, time)),
        share: (measure(row) / most) * 100,
      })),
      by === "job" ? "No process belongs to a job of a batch system." : "No processes.",
    );
  }
}

/** The name of a process, its command line where the agent shows it, and a link to its history. @param {Process} row */
function nameCell(row) {
  const chart = textOf("node_process_cpu_seconds_total", { comm: row.comm, pid: String(row.pid) });
  return el(
    "span",
    { title: row.cgroup ?? "" },
    el("a", { href: `#/${address("metrics", [["chart", chart]])}`, title: "Show its processor time", text: row.comm }),
    row.command ? el("small", { class: "command", text: row.command, title: row.command }) : null,
  );
}
