// The live state of MPI ranks in the Programs view: what each is in, and which the others wait for.

import { ask } from "./agent.js";
import { el } from "./dom.js";
import { Table } from "./table.js";

const EVERY_MS = 2e3;
const RANKS_MAX = 256;

/** Shows the ranks of all MPI programs. */
export function mpiPart() {
  const element = el("section", { class: "job", hidden: "" });
  /** @type {Map<string, {lines: HTMLElement, title: HTMLElement, table: Table, card: HTMLElement}>} */
  const shown = new Map();
  let busy = false;
  const load = async () => {
    if (busy || document.hidden) return;
    busy = true;
    try {
      draw((await ask("api/v1/mpi")).jobs ?? []);
    } catch {
      // The other parts of the view report that the agent does not answer.
    } finally {
      busy = false;
    }
  };
  load();
  const timer = setInterval(load, EVERY_MS);
  return { element, dispose: () => clearInterval(timer) };

  /** @param {any[]} jobs */
  function draw(jobs) {
    element.hidden = jobs.length === 0;
    const keys = jobs.map((job, at) => `${job.job} ${job.command} ${at}`);
    for (const [key, { card }] of shown) {
      if (keys.includes(key)) continue;
      card.remove();
      shown.delete(key);
    }
    jobs.forEach((job, at) => {
      const part = shown.get(keys[at]) ?? add(keys[at]);
      part.title.textContent = `${job.job ? `Job ${job.job}, ` : ""}${job.command}: MPI ranks`;
      const texts = job.findings.flatMap((/** @type {any} */ finding) => finding.lines);
      if (job.late_text) texts.push(`late: ${job.late_text}`);
      part.lines.replaceChildren(...texts.map((/** @type {string} */ text) => el("p", { class: "note", text })));
      part.table.show(
        job.ranks.slice(0, RANKS_MAX).map((/** @type {any} */ rank) => ({
          key: `${rank.node} ${rank.pid}`,
          cells: [`${rank.rank ?? "–"}`, rank.node, rank.state ?? "–", rank.collective_seconds.toFixed(1), rank.text],
        })),
      );
    });
  }

  /** @param {string} key */
  function add(key) {
    const title = el("h2");
    const lines = el("div");
    const table = new Table("MPI ranks", ["#rank", "node", "state", "#s in collectives", "~is"]);
    const card = el("div", { class: "card" }, title, lines, table.element);
    element.append(card);
    const part = { title, lines, table, card };
    shown.set(key, part);
    return part;
  }
}
