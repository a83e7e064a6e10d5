// Loads stored samples. Charts that need the same time range at the same moment share one request.

import { ask, ofJob, Refused, scoped, withoutHost } from "./agent.js";

/** @typedef {{name: string, labels: Record<string, string>, points: [number, number | null][]}} Past */
/** @typedef {{patterns: string[], resolve: (past: Past[]) => void, reject: (error: Error) => void}} Waiting */

/** The agent accepts URIs up to 8 KiB; a proxy in front of it may accept less. */
const PATTERN_BYTES_MAX = 3500;
/** A step that holds any history: a response then has the last value of each series. */
export const WHOLE_MS = 400 * 86400e3;
const GATHER_MS = 25;
const AT_ONCE_MAX = 2;

/** @type {Map<string, Waiting[]>} */
const gathered = new Map();
/** @type {(() => Promise<void>)[]} */
const queue = [];
let running = 0;

/**
 * Returns the matching stored samples, one per step; counters have their value at the end of each step.
 * @param {string[]} patterns
 * @param {number} from
 * @param {number} to
 * @param {number} step in milliseconds
 * @returns {Promise<Past[]>}
 */
export function past(patterns, from, to, step) {
  // The window may be newer than the newest sample.
  if (from > to) return Promise.resolve([]);
  const key = `${Math.floor(from)} ${Math.floor(to)} ${step}`;
  return new Promise((resolve, reject) => {
    const waiting = gathered.get(key);
    if (waiting) waiting.push({ patterns, resolve, reject });
    else {
      gathered.set(key, [{ patterns, resolve, reject }]);
      setTimeout(() => send(key), GATHER_MS);
    }
  });
}

/** @param {string} key */
function send(key) {
  const all = gathered.get(key) ?? [];
  gathered.delete(key);
  /** @type {Waiting[]} */
  let part = [];
  let bytes = 0;
  const flush = () => {
    if (part.length > 0) enqueue(key, part);
    part = [];
    bytes = 0;
  };
  for (const waiting of all) {
    const more = waiting.patterns.reduce((sum, pattern) => sum + encodeURIComponent(pattern).length + 7, 0);
    if (bytes + more > PATTERN_BYTES_MAX) flush();
    part.push(waiting);
    bytes += more;
  }
  flush();
}

/**
 * @param {string} key
 * @param {Waiting[]} part
 */
function enqueue(key, part) {
  queue.push(async () => {
    const [start, end, step] = key.split(" ");
    const patterns = [...new Set(part.flatMap((waiting) => waiting.patterns))];
    /** @type {[string, string][]} */
    const query = patterns.map((pattern) => ["match", pattern]);
    query.push(["start", start], ["end", end], ["step", `${step}ms`]);
    try {
      const answer = (await ask("api/v1/range", ofJob(scoped(query)))).map(withoutHost);
      for (const waiting of part) waiting.resolve(answer);
    } catch (error) {
      const cause = error instanceof Error ? error : new Refused(0, String(error));
      for (const waiting of part) waiting.reject(cause);
    }
  });
  next();
}

function next() {
  while (running < AT_ONCE_MAX) {
    const work = queue.shift();
    if (!work) return;
    running += 1;
    work().finally(() => {
      running -= 1;
      next();
    });
  }
}
