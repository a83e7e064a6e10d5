// Light and dark theme: that of the system, unless the user chose one. Line colours come from the style sheet.

const KEY = "pegel-theme";
const NAMES = { auto: "system setting", light: "light", dark: "dark" };
const SIGNS = { auto: "◐", light: "☀", dark: "☾" };

/** @typedef {"auto" | "light" | "dark"} Theme */

/** @type {Set<() => void>} */
const listeners = new Set();
/** @type {Map<string, string>} */
const colours = new Map();

/** @param {() => void} listener */
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** @returns {Theme} */
function chosen() {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "light" || kept === "dark" ? kept : "auto";
  } catch {
    return "auto"; // Some browsers deny access in private windows.
  }
}

const system = matchMedia("(prefers-color-scheme: dark)");

function apply() {
  const theme = chosen();
  const dark = theme === "dark" || (theme === "auto" && system.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  colours.clear();
  const button = document.getElementById("theme");
  if (button) {
    button.textContent = SIGNS[theme];
    button.title = `Colours: ${NAMES[theme]} (t)`;
    button.setAttribute("aria-label", `Colours: ${NAMES[theme]}. Change`);
  }
  for (const listener of [...listeners]) listener();
}

export function nextTheme() {
  const order = /** @type {Theme[]} */ (["auto", "light", "dark"]);
  const next = order[(order.indexOf(chosen()) + 1) % order.length];
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // The choice is then lost when the page is closed.
  }
  apply();
}

/** @param {string} name @returns {string} a colour of the style sheet */
export function colour(name) {
  const known = colours.get(name);
  if (known !== undefined) return known;
  const found = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  colours.set(name, found);
  return found;
}

export const LINES = 12;

/** @param {number} index */
export function lineColour(index) {
  return colour(`line-${index % LINES}`);
}

system.addEventListener("change", apply);
apply();
document.addEventListener("DOMContentLoaded", apply);
document.getElementById("theme")?.addEventListener("click", nextTheme);
