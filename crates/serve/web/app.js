// The page: switches between the views, and fills the bar at the top.

import { ask, scope, status } from "./agent.js";
import { startAlerts } from "./alerts.js";
import { byId, el, say } from "./dom.js";
import { duration } from "./format.js";
import { startHelp } from "./help.js";
import { jobsView } from "./jobs.js";
import { onState, sampleAge, watch } from "./live.js";
import { startMarks } from "./marks.js";
import { metricsView } from "./metrics.js";
import { nodeView } from "./node.js";
import { nodesView } from "./nodes.js";
import { overviewView } from "./overview.js";
import { home, readTime, urlOf, urlState } from "./url_state.js";
import { processesView } from "./processes.js";
import { programsView } from "./programs.js";
import { statusView } from "./status.js";
import { startTimebar } from "./timebar.js";
import { onMove, pan, stretch, zoom } from "./window.js";

/** @typedef {{dispose: () => void}} View */
/** @typedef {Record<string, [string, (main: HTMLElement) => View]>} Views */
/** @type {Views} */
let views = {
  overview: ["Overview", overviewView],
  node: ["Node", nodeView],
  processes: ["Processes", processesView],
  programs: ["Programs", programsView],
  metrics: ["Metrics", metricsView],
  status: ["Status", statusView],
  jobs: ["Jobs", jobsView],
};

/** The path of a node's page on its parent. */
const BELOW_PARENT = /\/nodes\/([^/]+)\/$/;

const STATES = { connecting: "connecting …", live: "connected", paused: "paused", lost: "disconnected" };
/** Without a sample for this long, its age is shown. */
const STALE_MS = 4000;

/** @type {View | null} */
let shown = null;
let name = "";

function show() {
  const current = urlState();
  // A notebook shows the charts alone.
  document.body.classList.toggle("embedded", current.query.get("embedded") === "1");
  readTime();
  const view = views[current.view] ? current.view : home.view;
  const job = current.query.get("job") ?? "";
  if (view === name && job === scope.job) return;
  shown?.dispose();
  name = view;
  scope.job = job;
  const main = byId("main");
  main.replaceChildren();
  main.className = `view-${view}`;
  if (job)
    main.append(
      el("p", { class: "notice" }, `Only job ${job}: its time, and the CPUs and devices that it held. `, el("a", { href: `#/${view}`, text: "Show all" })),
    );
  shown = views[view][1](main);
  document.title = `${views[view][0]} · ${byId("node").textContent || "Pegel"}`;
  links();
  scrollTo(0, 0);
}

function links() {
  for (const link of byId("views").children) {
    link.setAttribute("href", urlOf(link.dataset.view));
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

async function nameNode() {
  try {
    const facts = await status.get();
    say(byId("node"), facts.node);
    document.title = `${views[name]?.[0] ?? "Pegel"} · ${facts.node}`;
    const below = BELOW_PARENT.exec(location.pathname);
    byId("parent").hidden = !below || decodeURIComponent(below[1]) !== facts.node;
    byId("logout").hidden = location.protocol !== "https:" || below !== null || !facts.http.guard.token;
    const notice = byId("notice");
    notice.hidden = !facts.degraded;
    if (facts.degraded)
      say(notice, `The agent is degraded: ${facts.store.degraded?.reason ?? "see Status"}.`);
  } catch (error) {
    const refused = /** @type {any} */ (error).status === 401 || /** @type {any} */ (error).status === 403;
    const notice = byId("notice");
    notice.hidden = !refused;
    if (refused) say(notice, `This agent denies read access: ${/** @type {Error} */ (error).message}.`);
    if (refused && location.protocol === "https:")
      notice.append(" ", el("a", { href: location.pathname, text: "Log in again" }));
  }
}

/** Shows whether the agent is connected, and the age of its last sample if that is not the present. */
function showState() {
  const element = byId("state");
  const state = /** @type {keyof typeof STATES} */ (element.dataset.state ?? "connecting");
  const isStale = state === "lost" || (state === "live" && sampleAge() > STALE_MS);
  document.body.classList.toggle("stale", isStale);
  say(element, isStale ? `${STATES[state]} · last sample ${duration(sampleAge())} ago` : STATES[state]);
}

async function logOut() {
  await fetch("logout", { method: "POST" }).catch(() => null);
  location.reload();
}

/** On a parent, the nodes below it come first, and the other views show its own node. */
async function findNodes() {
  const { node, nodes } = await ask("api/v1/nodes");
  if (nodes.length < 2 && !nodes.some((/** @type {any} */ each) => each.is_parent)) return;
  scope.node = node;
  home.view = "nodes";
  views = { nodes: ["Nodes", nodesView], ...views };
}

function start() {
  for (const [view, [title]] of Object.entries(views))
    byId("views").append(el("a", { href: `#/${view}`, "data-view": view, text: title }));
  byId("logout").addEventListener("click", logOut);
  onState((state) => {
    byId("state").dataset.state = state;
    document.body.dataset.state = state;
    showState();
    if (state === "live") {
      status.forget();
      nameNode();
    }
  });
  readTime();
  startTimebar();
  startHelp(Object.keys(views));
  startAlerts();
  startMarks();
  onMove(links);
  addEventListener("hashchange", show);
  // The wheel moves in time only with Shift: without it, the page scrolls.
  byId("main").addEventListener(
    "wheel",
    (/** @type {any} */ event) => {
      if (!event.shiftKey || !event.target.closest(".plot")) return;
      event.preventDefault();
      pan((event.deltaY || event.deltaX) > 0 ? 0.1 : -0.1);
    },
    { passive: false },
  );
  byId("main").addEventListener(
    "dblclick",
    (/** @type {any} */ event) => event.target.closest(".plot") && zoom(2),
  );
  watch({ patterns: [], meet: () => {}, tick: () => {}, resync: nameNode });
  setInterval(() => !document.hidden && nameNode(), 20e3);
  setInterval(showState, 1000);
  show();
}

// Until the first sample arrives, the agent's own clock is the best estimate.
const described = status.get().then(
  (facts) => {
    stretch.now = facts.store.newest ?? stretch.now;
    stretch.oldest = facts.store.oldest;
    stretch.rate = facts.rate * 1000;
  },
  () => {},
);
Promise.all([described, findNodes().catch(() => {})]).then(start);
