// Alerts of the agent's rules, above every view: those that fire, and the number of those that are pending.

import { ask } from "./agent.js";
import { byId, el } from "./dom.js";
import { duration } from "./format.js";
import { labelText } from "./series.js";

const EVERY_MS = 15e3;

export function startAlerts() {
  const load = async () => {
    if (document.hidden) return;
    try {
      show((await ask("api/v1/alerts")).data.alerts);
    } catch {
      // Without an answer, the state of the connection is shown elsewhere.
    }
  };
  load();
  setInterval(load, EVERY_MS);
}

/** @param {any[]} alerts */
function show(alerts) {
  const firing = alerts.filter((alert) => alert.state === "firing");
  const pending = alerts.length - firing.length;
  const box = byId("alerts");
  box.hidden = alerts.length === 0;
  const count = `${firing.length} firing${pending > 0 ? `, ${pending} pending` : ""}`;
  box.replaceChildren(el("strong", { text: `Alerts: ${count}` }), el("ul", {}, firing.map(item)));
}

/** @param {any} alert */
function item(alert) {
  const { alertname, ...labels } = alert.labels;
  const text = alert.annotations.summary || alert.annotations.description || labelText(labels);
  const since = duration(Date.now() - Date.parse(alert.activeAt));
  return el(
    "li",
    { title: labelText(labels) },
    el("strong", { text: alertname }),
    el("span", { text: text ? ` ${text}` : "" }),
    el("span", { class: "note", text: ` · for ${since}` }),
  );
}
