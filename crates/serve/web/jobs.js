// The Jobs view: jobs of the last week, with links to the charts of their time, CPUs and devices.

import { ask, pageOf, scope } from "./agent.js";
import { el, say } from "./dom.js";
import { duration, number, whole } from "./format.js";
import { Table } from "./table.js";
import { stretch } from "./window.js";

const EVERY_MS = 5e3;
const ROWS_MAX = 500;
/** Charts of a running job end before the newest sample: they would follow the values of all jobs otherwise. */
const BEHIND_MS = 5e3;
const SPAN_MIN_MS = 5e3;

/** @param {HTMLElement} main */
export function jobsView(main) {
  const note = el("p", { class: "note", role: "status" });
  const heads = ["~job", "user", "~nodes", "begin", "#duration", "#CPU", "#GPU", "#memory", "state"];
  const table = new Table("Jobs", heads);
  main.append(note, el("section", { class: "card" }, table.element));
  let timer = 0;
  let gone = false;
  load();
  return {
    dispose() {
      gone = true;
      clearTimeout(timer);
    },
  };

  async function load() {
    try {
      const { jobs, left_out } = await ask("api/v1/jobs", [
        ["since", "-7d"],
        ["limit", String(ROWS_MAX)],
      ]);
      if (gone) return;
      const more = left_out > 0 ? ` · ${whole(left_out)} older ones are not shown` : "";
      say(note, `${whole(jobs.length)} jobs of the last 7 days${more} · CPU and GPU: used of held`);
      table.show(jobs.map(row), "No jobs in the last 7 days. Jobs are found by the cgroups of Slurm, PBS, LSF and Flux, by lanes, and by pegel run -j.");
    } catch (error) {
      if (gone) return;
      say(note, "");
      table.show([], `Cannot list jobs: ${/** @type {Error} */ (error).message}.`);
    }
    timer = setTimeout(load, EVERY_MS);
  }
}

/** @param {Record<string, any>} job */
function row(job) {
  return {
    key: `${job.job} ${job.begin} ${job.uid}`,
    cells: [
      el("a", { href: chartsOf(job), title: "Show the charts of its time, CPUs and devices", text: job.job }),
      job.user ?? "unknown",
      job.nodes.length > 3 ? `${job.nodes.slice(0, 3).join(", ")} and ${job.nodes.length - 3} more` : job.nodes.join(", "),
      new Date(job.begin).toLocaleString(),
      duration(job.duration * 1000),
      share(job.cpu_ratio, job.cpus),
      share(job.gpu_ratio, job.gpus),
      job.memory_peak === null ? "–" : number(job.memory_peak, "bytes"),
      job.state,
    ],
    share: (job.cpu_ratio ?? 0) * 100,
  };
}

/** @param {number | null} ratio @param {number | null} held */
function share(ratio, held) {
  return ratio === null || held === null ? "–" : `${number(ratio * 100, "%")} of ${held}`;
}

/** The address of the charts of a job; on a parent, those of its first node. @param {Record<string, any>} job */
function chartsOf(job) {
  const end = job.end ?? stretch.now - BEHIND_MS;
  const query = new URLSearchParams({
    job: job.job,
    span: String(Math.max(end - job.begin, SPAN_MIN_MS) / 1000),
    to: String(Math.round(Math.max(end, job.begin + SPAN_MIN_MS))),
  });
  const isOwn = !scope.node || job.nodes.includes(scope.node);
  return `${isOwn ? "" : pageOf(job.nodes[0])}#/node?${query}`;
}
