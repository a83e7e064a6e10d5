// Live data: one stream for the whole page, whatever it shows. It is closed while the page is hidden, and reopened
// after the connection was lost; watchers then fill the gap from the store.

import { address, scoped, withoutHost } from "./agent.js";
import { parse } from "./series.js";
import { stretch } from "./window.js";

/**
 * @typedef {import("./series.js").Series & {value: number | null, ts: number}} Entry
 * @typedef {{at: number, new: string[], ids: number[], ago: number[], values: (number | null)[]}} Event
 * @typedef {{
 *   patterns: string[],
 *   meet: (entry: Entry) => void,
 *   tick: (at: number) => void,
 *   restart?: () => void,
 *   resync?: () => void,
 * }} Watcher
 * @typedef {"connecting" | "live" | "paused" | "lost"} State
 */

/** A series that changes with every tick, at every level, so that time advances even if nothing else changes. */
const PULSE = 'pegel_received_total{input="collect"}';
const RETRY_MS = [500, 1000, 2000, 4000];
/** Without any event for this long, the connection is considered dead. */
const SILENCE_MS = 15000;
const HIDDEN_MS = 3000;
/** The agent ends a stream with more series; this also bounds the memory of the page. */
const ENTRIES_MAX = 19000;

/** @type {Set<Watcher>} */
const watchers = new Set();
/** @type {Entry[]} */
let entries = [];
/** @type {Entry | null} */
let pulse = null;
/** @type {EventSource | null} */
let source = null;
let opened = "";
let failures = 0;
let gap = false;
/** @type {State} */
let state = "connecting";
let heard = performance.now();
let reopening = 0;
let silence = 0;
let hiding = 0;
/** @type {Set<(state: State) => void>} */
const listeners = new Set();

/** @param {(state: State) => void} listener */
export function onState(listener) {
  listeners.add(listener);
  listener(state);
  return () => listeners.delete(listener);
}

/** Milliseconds since the last sample arrived, by the browser's clock. */
export function sampleAge() {
  return performance.now() - heard;
}

/** Whether samples arrive. */
export function isConnected() {
  return state === "live";
}

/** @param {State} next */
function become(next) {
  if (state === next) return;
  state = next;
  for (const listener of [...listeners]) listener(next);
}

/**
 * @param {Watcher} watcher
 * @returns {() => void} stops watching
 */
export function watch(watcher) {
  watchers.add(watcher);
  for (const entry of entries) watcher.meet(entry);
  soon(50);
  return () => {
    watchers.delete(watcher);
    soon(400);
  };
}

/** @param {number} millis */
function soon(millis) {
  clearTimeout(reopening);
  reopening = setTimeout(open, millis);
}

function wanted() {
  const patterns = new Set([PULSE]);
  for (const watcher of watchers) for (const pattern of watcher.patterns) patterns.add(pattern);
  /** @type {[string, string][]} */
  const matches = [...patterns].sort().map((pattern) => ["match", pattern]);
  return address("api/v1/stream", scoped([["form", "columns"], ["rate", "2"], ...matches]));
}

function open() {
  if (document.hidden) return;
  const url = wanted();
  if (source && url === opened) return;
  source?.close();
  opened = url;
  forget();
  const mine = new EventSource(url);
  source = mine;
  mine.onmessage = (message) => {
    if (source === mine) feed(JSON.parse(message.data));
  };
  mine.onerror = () => {
    if (source === mine) lose();
  };
  listen();
}

function forget() {
  entries = [];
  pulse = null;
  for (const watcher of watchers) watcher.restart?.();
}

function listen() {
  clearTimeout(silence);
  silence = setTimeout(lose, SILENCE_MS);
}

function lose() {
  close();
  gap = true;
  become("lost");
  soon(RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]);
  failures += 1;
}

function close() {
  source?.close();
  source = null;
  opened = "";
  clearTimeout(silence);
  clearTimeout(reopening);
}

/**
 * Processes one event of the stream.
 * @param {Event} event
 */
export function feed(event) {
  listen();
  heard = performance.now();
  failures = 0;
  const met = entries.length;
  for (const text of event.new) entries.push({ ...withoutHost(parse(text)), value: null, ts: 0 });
  event.ids.forEach((id, at) => {
    const entry = entries[id];
    if (!entry) return;
    entry.value = event.values[at];
    entry.ts = event.at - event.ago[at];
  });
  for (let id = met; id < entries.length; id += 1) {
    if (entries[id].text === PULSE) pulse = entries[id];
    for (const watcher of watchers) watcher.meet(entries[id]);
  }
  // Programs may send samples with future times; the pulse defines the current time.
  const at = pulse ? pulse.ts : event.at;
  const restarted = gap || at < stretch.now - 60e3;
  if (at > stretch.now || restarted || state !== "live") stretch.now = at;
  become("live");
  if (restarted) {
    gap = false;
    for (const watcher of [...watchers]) watcher.resync?.();
  }
  for (const watcher of [...watchers]) watcher.tick(at);
  if (entries.length > ENTRIES_MAX) {
    close();
    soon(0);
  }
}

function pause() {
  close();
  gap = true;
  become("paused");
}

function resume() {
  if (source || document.hidden) return;
  become("connecting");
  failures = 0;
  soon(0);
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(pause, HIDDEN_MS);
  else resume();
});
// Browsers cache a page that was left, with its connection; they permit six connections per agent.
addEventListener("pagehide", pause);
addEventListener("pageshow", (event) => event.persisted && resume());
