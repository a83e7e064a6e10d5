// Keyboard shortcuts and the help dialog.

import { byId, el } from "./dom.js";
import { nextTheme } from "./theme.js";
import { move, pan, showAll, stretch, zoom } from "./window.js";

/** @type {[string, string, (() => void) | null][]} */
const KEYS = [
  ["/", "search for a metric", () => find()],
  ["←", "move back in time", () => pan(-0.5)],
  ["→", "move forward in time", () => pan(0.5)],
  ["+", "zoom in", () => zoom(0.5)],
  ["-", "zoom out", () => zoom(2)],
  ["l", "follow live data", () => move(stretch.span, null)],
  ["a", "show all stored data", showAll],
  ["t", "switch between light and dark", nextTheme],
  ["?", "show this help", () => toggle()],
];

const ARROWS = { ArrowLeft: "←", ArrowRight: "→", "=": "+" };

function find() {
  if (!location.hash.startsWith("#/metrics")) location.hash = "#/metrics";
  setTimeout(() => byId("search")?.focus(), 60);
}

function toggle() {
  const dialog = byId("keys");
  if (dialog.open) dialog.close();
  else dialog.showModal();
}

/** @param {string[]} views */
export function startHelp(views) {
  /** @type {typeof KEYS} */
  const keys = [[`1 … ${views.length}`, "switch to a view, from left to right", null], ...KEYS];
  const rows = keys.map(([key, meaning]) =>
    el("tr", {}, el("th", { scope: "row" }, el("kbd", { text: key })), el("td", { text: meaning })),
  );
  byId("keys").append(
    el("h2", { id: "keys-title", text: "Keyboard shortcuts" }),
    el("table", {}, el("tbody", {}, rows)),
    el("p", {
      text: "In a chart: drag to zoom in, double-click to zoom out, hold Shift and turn the wheel to move in time. Click a name in the legend to show only that line.",
    }),
    el("button", { type: "button", text: "Close", on: { click: toggle } }),
  );
  byId("help").addEventListener("click", toggle);
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    const typing = target.matches("input, select, textarea") || byId("keys").open;
    if (event.ctrlKey || event.metaKey || event.altKey || (typing && event.key !== "Escape")) return;
    const view = views[Number(event.key) - 1];
    if (view) location.hash = `#/${view}`;
    const pressed = /** @type {any} */ (ARROWS)[event.key] ?? event.key;
    const known = KEYS.find(([key, , act]) => act && key === pressed);
    if (!known?.[2]) return;
    event.preventDefault();
    known[2]();
  });
}
