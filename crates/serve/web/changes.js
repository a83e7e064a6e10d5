// Recent changes: the series whose last minutes differ most from the time before.

import { list } from "./agent.js";
import { el, say, sparkline } from "./dom.js";
import { duration, number } from "./format.js";
import { past } from "./history.js";
import { textOf } from "./series.js";
import { bounds, isLive, onMove, stretch } from "./window.js";

/**
 * @typedef {import("./history.js").Past} Past
 * @typedef {{text: string, score: number, before: number, now: number, unit: string, values: (number | null)[]}} Change
 */

const CELLS = 40;
const RECENT = 6;
/** A shorter baseline is not compared. */
const EARLIER_MIN = 5;
const SHOWN = 10;
const EVERY_MS = 30e3;
/** Beyond this number, only selected series are compared: the response would be too large. */
const SERIES_MAX = 8000;
/** Series that always change, or that duplicate others. */
const DULL =
  /^(node_time|node_uptime|node_boot|node_timex|node_entropy|pegel_|node_softnet|node_netstat_Ip|node_memory_(Active|Inactive|numa|DirectMap|Vmalloc)|node_disk_.*weighted|node_schedstat)/;
const LEAST = { bytes: 1 << 20, "bytes/s": 64 << 10, seconds: 1e-3, "seconds/s": 0.02, "/s": 5, "": 0.5 };

export function changesCard() {
  const title = el("h2", { text: "Recent changes" });
  const note = el("p", { class: "note", text: "Comparing …" });
  const table = el("div", { class: "changes" });
  const element = el("section", { class: "card changes-card", "aria-live": "off" }, title, note, table);
  let gone = false;
  let timer = 0;
  let number_ = 0;

  async function look() {
    clearTimeout(timer);
    const mine = (number_ += 1);
    if (!document.hidden) {
      const [from, to] = bounds();
      const step = Math.max(Math.ceil((to - from) / CELLS / stretch.rate) * stretch.rate, stretch.rate);
      try {
        const all = await list.get(60e3);
        const patterns =
          all.length > SERIES_MAX
            ? ["node_cpu*", "node_disk*", "node_network_*_bytes_total", "node_memory_Mem*", "node_load*"]
            : ["*"];
        const answer = await past(patterns, (Math.floor(from / step) - 1) * step, to, step);
        if (gone || mine !== number_) return;
        show(
          rank(answer, new Map(all.map((/** @type {any} */ each) => [each.name, each])), step, to),
          RECENT * step,
          to - from,
        );
      } catch (error) {
        if (gone) return;
        note.textContent = `Cannot compare: ${/** @type {Error} */ (error).message}.`;
      }
    }
    if (isLive() && !gone) timer = setTimeout(look, EVERY_MS);
  }

  /** @param {Change[]} changes @param {number} recent @param {number} span */
  function show(changes, recent, span) {
    const [from, to] = bounds();
    // The baseline is no longer than the history.
    const history = to - Math.max(from, stretch.oldest ?? to);
    const before = Math.min(span, history) - recent;
    const compared = `the last ${duration(recent)}`;
    if (before < (EARLIER_MIN * recent) / RECENT)
      say(note, `Not enough history to compare yet: the store has ${duration(history)} of the shown time.`);
    else if (changes.length > 0) say(note, `${cap(compared)} compared with the ${duration(before)} before.`);
    else say(note, `No notable change: ${compared} are similar to the ${duration(before)} before.`);
    table.replaceChildren(...changes.map(changeRow));
  }

  const stop = onMove(() => {
    clearTimeout(timer);
    timer = setTimeout(look, 300);
  });
  look();
  return {
    element,
    dispose() {
      gone = true;
      clearTimeout(timer);
      stop();
    },
  };
}

/** @param {string} text */
function cap(text) {
  return text[0].toUpperCase() + text.slice(1);
}

/** The size of a change. @param {number} before @param {number} now */
export function changeText(before, now) {
  if (before === 0) return "from 0";
  const factor = now / before;
  if (factor >= 2) return `× ${number(factor)}`;
  return `${factor >= 1 ? "+" : "−"}${Math.abs((factor - 1) * 100).toFixed(0)} %`;
}

/** @param {Change} change */
function changeRow(change) {
  const rises = change.now >= change.before;
  const times = changeText(change.before, change.now);
  return el(
    "a",
    {
      class: "change",
      href: `#/metrics?chart=${encodeURIComponent(change.text)}`,
      title: `Show ${change.text} as a chart`,
    },
    el("span", { class: "change-name", text: change.text }),
    el("span", { class: `change-times ${rises ? "up" : "down"}`, text: `${rises ? "▲" : "▼"} ${times}` }),
    el("span", {
      class: "change-values",
      text: `${number(change.before, change.unit)} → ${number(change.now, change.unit)}`,
    }),
    sparkline(change.values, { width: 160, label: `${change.text} over time` }),
  );
}

/**
 * @param {Past[]} answer
 * @param {Map<string, {type: string, unit: string}>} known
 * @param {number} step
 * @param {number} to
 * @returns {Change[]}
 */
export function rank(answer, known, step, to) {
  const changes = [];
  for (const series of answer) {
    if (DULL.test(series.name)) continue;
    const text = textOf(series.name, series.labels);
    const meaning = known.get(text);
    if (!meaning) continue;
    const counter = meaning.type === "counter" || /^node_(vmstat|netstat)_/.test(series.name);
    const change = compare(text, series.points, counter, `${meaning.unit}${counter ? "/s" : ""}`, step, to);
    if (change) changes.push(change);
  }
  return changes.sort((a, b) => b.score - a.score).slice(0, SHOWN);
}

/**
 * Compares the recent mean with the one before, relative to the usual variation.
 * @param {string} text
 * @param {Past["points"]} points
 * @param {boolean} counter
 * @param {string} unit
 * @param {number} step
 * @param {number} to
 * @returns {Change | null}
 */
function compare(text, points, counter, unit, step, to) {
  const end = Math.floor(to / step);
  /** @type {(number | null)[]} */
  const values = new Array(CELLS).fill(null);
  points.forEach(([time, value], at) => {
    const cell = CELLS - 1 - (end - Math.floor(time / step));
    if (value === null || cell < 0 || cell >= CELLS) return;
    const previous = at > 0 ? points[at - 1] : null;
    if (!counter) values[cell] = value;
    else if (previous && previous[1] !== null && value >= previous[1])
      values[cell] = ((value - previous[1]) / (time - previous[0])) * 1000;
  });
  // The last cell is incomplete.
  const recent = values.slice(-RECENT - 1, -1).filter((value) => value !== null);
  const earlier = values.slice(0, -RECENT - 1).filter((value) => value !== null);
  if (recent.length < 3 || earlier.length < EARLIER_MIN) return null;
  const mean = (/** @type {any[]} */ all) => all.reduce((total, value) => total + value, 0) / all.length;
  const [now, before] = [mean(recent), mean(earlier)];
  const least = /** @type {any} */ (LEAST)[unit] ?? 0.5;
  const moved = Math.abs(now - before);
  const size = Math.max(Math.abs(now), Math.abs(before));
  if (moved < least || moved < size * 0.3) return null;
  const spread = Math.sqrt(mean(earlier.map((value) => (value - before) ** 2)));
  const score = moved / (spread + size * 0.05 + least * 0.1);
  return score < 3 ? null : { text, score, before, now, unit, values };
}
