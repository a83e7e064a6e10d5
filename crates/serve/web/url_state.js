// The state of the page in its URL: the part after `#`. It can be bookmarked and shared.

import { bounds, isLive, move, onMove, stretch } from "./window.js";

/** @typedef {{view: string, query: URLSearchParams}} UrlState */

/** The view of a URL without one. */
export const home = { view: "overview" };

/** @returns {UrlState} */
export function urlState() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { view: path || home.view, query: new URLSearchParams(query) };
}

/** @param {string} view @param {URLSearchParams} query */
function text(view, query) {
  const rest = query.toString();
  return `#/${view}${rest ? `?${rest}` : ""}`;
}

/** @param {URLSearchParams} query */
function setTimeParameters(query) {
  query.delete("span");
  query.delete("to");
  if (stretch.span !== 300e3) query.set("span", String(Math.round(stretch.span / 1000)));
  if (!isLive()) query.set("to", String(Math.round(bounds()[1])));
  return query;
}

/** The URL of another view, with the same time window. @param {string} view */
export function urlOf(view) {
  return text(view, setTimeParameters(new URLSearchParams()));
}

/** Changes the query of the current view in the URL. @param {(query: URLSearchParams) => void} change */
export function updateUrl(change) {
  const { view, query } = urlState();
  change(query);
  history.replaceState(null, "", text(view, query));
}

/** Reads the time window from the URL. */
export function readTime() {
  const { query } = urlState();
  const span = Number(query.get("span")) * 1000 || 300e3;
  const to = Number(query.get("to")) || null;
  const [, end] = bounds();
  if (span !== stretch.span || (to ?? end) !== end || (to === null) !== isLive()) move(span, to);
}

onMove(() => updateUrl(setTimeParameters));
