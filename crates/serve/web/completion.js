// Completes PromQL in an input: functions and names of metrics, label names inside braces, label values inside quotes.

import { ask, list } from "./agent.js";
import { el } from "./dom.js";

const SHOWN = 12;
const WORDS = (
  "abs absent absent_over_time avg avg_over_time bottomk ceil changes clamp clamp_max clamp_min count count_over_time " +
  "count_values day_of_month day_of_week days_in_month delta deriv double_exponential_smoothing exp floor group " +
  "histogram_fraction histogram_quantile hour idelta increase irate label_join label_replace last_over_time limitk ln " +
  "log10 log2 max max_over_time min min_over_time minute month predict_linear present_over_time quantile " +
  "quantile_over_time rate resets round scalar sgn sort sort_desc sqrt stddev stddev_over_time stdvar sum " +
  "sum_over_time time timestamp topk vector year by without on ignoring group_left group_right offset bool"
).split(" ");

/** The text before the cursor, split into what is completed and what decides how. */
const IN_QUOTES = /([a-zA-Z_:][\w:.]*)?\{[^{}]*?([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)\s*"([^"]*)$/;
const IN_BRACES = /([a-zA-Z_:][\w:.]*)?\{(?:[^{}]*,)?\s*([a-zA-Z_]\w*)?$/;
const WORD = /([a-zA-Z_:][\w:.]*)$/;

/**
 * Returns the candidates, and how many characters before the cursor they replace.
 * @param {string} before
 * @returns {Promise<{candidates: string[], length: number}>}
 */
async function complete(before) {
  const quoted = IN_QUOTES.exec(before);
  if (quoted) {
    const [, name, label, typed] = quoted;
    return pick(await data(`api/v1/label/${encodeURIComponent(label)}/values`, name), typed);
  }
  const braced = IN_BRACES.exec(before);
  if (braced) return pick(await data("api/v1/labels", braced[1]), braced[2] ?? "");
  const typed = WORD.exec(before)?.[1] ?? "";
  if (typed.length < 2) return { candidates: [], length: 0 };
  const all = await list.get(60e3);
  const names = all.map((/** @type {any} */ each) => each.name.split("{")[0].replace(/[^\w:]/g, "_"));
  return pick([...WORDS, ...new Set(names)], typed);
}

/** @param {string} path @param {string | undefined} name of the metric */
async function data(path, name) {
  const answer = await ask(path, name ? [["match[]", name]] : []);
  return answer.data.filter((/** @type {string} */ each) => each !== "__name__");
}

/** Those that begin with what was typed come first, then those that contain it. @param {string[]} all @param {string} typed */
export function pick(all, typed) {
  const wanted = typed.toLowerCase();
  const place = (/** @type {string} */ text) => text.toLowerCase().indexOf(wanted);
  const candidates = all.filter((text) => place(text) >= 0 && text !== typed);
  candidates.sort((a, b) => Math.min(place(a), 1) - Math.min(place(b), 1) || a.localeCompare(b));
  return { candidates: candidates.slice(0, SHOWN), length: typed.length };
}

/**
 * Adds completion to an input; returns the list, which belongs after it.
 * @param {HTMLInputElement} input
 * @param {(before: string) => Promise<{candidates: string[], length: number}>} [candidatesFor] completes the text before
 *   the cursor; PromQL if it is missing
 */
export function completed(input, candidatesFor = complete) {
  const options = el("ul", { class: "completion", role: "listbox", id: `${input.id}-options`, hidden: true });
  let length = 0;
  let asked = 0;
  let at = -1;
  input.setAttribute("role", "combobox");
  input.setAttribute("aria-controls", options.id);
  input.setAttribute("aria-expanded", "false");

  const show = (/** @type {string[]} */ candidates) => {
    at = -1;
    options.hidden = candidates.length === 0;
    input.setAttribute("aria-expanded", String(!options.hidden));
    options.replaceChildren(
      ...candidates.map((text, index) =>
        el("li", {
          role: "option",
          id: `${options.id}-${index}`,
          text,
          // Before the input loses the focus.
          on: { mousedown: (/** @type {Event} */ event) => (event.preventDefault(), take(text)) },
        }),
      ),
    );
  };

  const take = (/** @type {string} */ text) => {
    const cursor = input.selectionStart ?? input.value.length;
    input.setRangeText(text, cursor - length, cursor, "end");
    show([]);
    input.focus();
  };

  const mark = (/** @type {number} */ step) => {
    const count = options.children.length;
    at = (at + step + count + (at < 0 && step < 0 ? 1 : 0)) % count;
    [...options.children].forEach((each, index) => each.setAttribute("aria-selected", String(index === at)));
    input.setAttribute("aria-activedescendant", options.children[at].id);
  };

  input.addEventListener("input", async () => {
    const mine = (asked += 1);
    const found = await candidatesFor(input.value.slice(0, input.selectionStart ?? 0)).catch(() => null);
    if (mine !== asked || !found) return;
    length = found.length;
    show(found.candidates);
  });
  input.addEventListener("blur", () => show([]));
  input.addEventListener("keydown", (event) => {
    if (options.hidden) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") mark(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Tab" || (event.key === "Enter" && at >= 0))
      take(options.children[Math.max(at, 0)].textContent ?? "");
    else if (event.key === "Escape") show([]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return options;
}
