// Requests to the agent. Every URL is relative to the page, so that it works behind a prefix.

import { parse, textOf } from "./series.js";

/**
 * On a parent: the name of its own node. The answers of a parent cover all nodes below it; most views show one node.
 */
export const scope = { node: "", job: "" };

/** Restricts a request for stored samples to the job that the page shows. @param {[string, string][]} query @returns {[string, string][]} */
export function ofJob(query) {
  return scope.job ? [...query, ["job", scope.job]] : query;
}

/** Restricts a request on a parent to its own node. @param {[string, string][]} query @returns {[string, string][]} */
export function scoped(query = []) {
  return scope.node ? [...query, ["nodes", scope.node]] : query;
}

/**
 * Removes the label by which a parent distinguishes nodes from its own series.
 * @template {{name: string, labels: Record<string, string>}} T
 * @param {T} series
 * @returns {T}
 */
export function withoutHost(series) {
  if (!scope.node || series.labels.host !== scope.node) return series;
  const { host: _, ...labels } = series.labels;
  return { ...series, labels, text: textOf(series.name, labels) };
}

/** @typedef {{answered: number, expected: number}} Coverage */

/** How many nodes contributed to an answer. @type {WeakMap<object, Coverage>} */
const coverages = new WeakMap();

/** How many nodes contributed to an answer of a parent. @param {any} answer @returns {Coverage | undefined} */
export function coverageOf(answer) {
  return coverages.get(answer);
}

/** A response that is not 200, with the agent's message. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * @param {string} path
 * @param {[string, string][]} [query]
 * @returns {string}
 */
export function address(path, query = []) {
  const text = query.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
  return text ? `${path}?${text}` : path;
}

/** The page of another node, also from the page of a node: a path names one node only. @param {string} node */
export function pageOf(node) {
  const isOfNode = /\/nodes\/[^/]+\/$/.test(location.pathname);
  return `${isOfNode ? "../" : "nodes/"}${encodeURIComponent(node)}/`;
}

/**
 * @param {string} path
 * @param {[string, string][]} [query]
 * @returns {Promise<any>}
 */
export async function ask(path, query = []) {
  let response;
  try {
    response = await fetch(address(path, query), {
      headers: { accept: "application/json" },
      cache: "no-store",
    });
  } catch {
    throw new Refused(0, "the agent cannot be reached");
  }
  if (response.ok) {
    const answer = await response.json();
    const counts = /answered=(\d+) expected=(\d+)/.exec(response.headers.get("pegel-nodes") ?? "");
    if (counts) coverages.set(answer, { answered: Number(counts[1]), expected: Number(counts[2]) });
    return answer;
  }
  let message = `the agent responded with status ${response.status}`;
  try {
    const { error } = await response.json();
    if (typeof error === "string") message = error;
    else message = error.hint ? `${error.message} (${error.hint})` : error.message;
  } catch {
    // A proxy between the page and the agent responded; its body is not shown.
  }
  throw new Refused(response.status, message);
}

/** A response that several parts of the page use, cached for a short time. */
class Kept {
  /**
   * @param {string} path
   * @param {number} millis
   * @param {() => [string, string][]} [query]
   * @param {(answer: any) => any} [convert]
   */
  constructor(path, millis, query = () => [], convert = (answer) => answer) {
    this.path = path;
    this.query = query;
    this.convert = convert;
    this.millis = millis;
    this.at = -Infinity;
    /** @type {Promise<any> | null} */
    this.answer = null;
    /** @type {any} */
    this.last = null;
  }

  /** @param {number} [millis] the maximum age; large responses may be older */
  get(millis = this.millis) {
    const now = performance.now();
    if (!this.answer || now - this.at > Math.max(millis, (this.last?.length ?? 0) * 5)) {
      this.at = now;
      this.answer = ask(this.path, this.query()).then(
        (value) => (this.last = this.convert(value)),
        (error) => {
          this.answer = null;
          throw error;
        },
      );
    }
    return this.answer;
  }

  forget() {
    this.answer = null;
  }
}

export const status = new Kept("status", 5000);
export const list = new Kept("api/v1/list", 15000, scoped, ofOwnNode);

/** The names of series without the label of the own node. @param {any[]} all */
function ofOwnNode(all) {
  return scope.node ? all.map((each) => ({ ...each, name: withoutHost(parse(each.name)).text })) : all;
}

const listOfAllNodes = new Kept("api/v1/list", 15000);

/** The series of all nodes, without the label of the node. @param {number} [millis] the maximum age */
export function listEverywhere(millis) {
  return (scope.node ? listOfAllNodes : list).get(millis);
}
