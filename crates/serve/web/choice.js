// A charted series and its options, in the form that the page's URL stores.

/**
 * @typedef {{
 *   series: string,
 *   by: string,
 *   fold: "sum" | "avg" | "min" | "max",
 *   rate: boolean | null,
 *   stack: boolean,
 *   promql?: boolean,
 * }} Choice
 * With `promql`, `series` is an expression.
 */

/** One line per series, or one line for all of them. */
export const EACH = "(each)";
export const ALL = "(all)";

/**
 * A choice with default options. Series of processors and modes are grouped by mode: with one line for each of both,
 * nothing can be seen.
 * @param {string} series
 * @returns {Choice}
 */
export function choice(series) {
  return { series, by: series === "node_cpu_seconds_total" ? "mode" : EACH, fold: "sum", rate: null, stack: false };
}

/** Encodes a choice. The options precede the series, which may contain any character. @param {Choice} chosen */
export function written(chosen) {
  const options = [
    chosen.by !== choice(chosen.series).by && `by=${chosen.by}`,
    chosen.fold !== "sum" && `fold=${chosen.fold}`,
    chosen.rate !== null && `rate=${chosen.rate ? 1 : 0}`,
    chosen.stack && "stack=1",
    chosen.promql && "promql=1",
  ].filter(Boolean);
  return options.length > 0 ? `${options.join(",")}|${chosen.series}` : chosen.series;
}

/** @param {string} text @returns {Choice} */
export function read(text) {
  const parts = /^([a-z]+=[^|{]*)\|(.*)$/s.exec(text);
  if (!parts) return choice(text);
  const options = new Map(
    parts[1].split(",").map((option) => /** @type {[string, string]} */ (option.split("="))),
  );
  const fold = options.get("fold");
  return {
    series: parts[2],
    by: options.get("by") ?? choice(parts[2]).by,
    fold: fold === "avg" || fold === "min" || fold === "max" ? fold : "sum",
    rate: options.has("rate") ? options.get("rate") === "1" : null,
    stack: options.get("stack") === "1",
    promql: options.get("promql") === "1",
  };
}
