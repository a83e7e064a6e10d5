// Series as text, `name{key="value",…}`, and patterns over their names.

/** @typedef {Record<string, string>} Labels */
/** @typedef {{text: string, name: string, labels: Labels}} Series */

const LABEL = /([^=,{}]+)="((?:[^"\\]|\\.)*)"/g;

/**
 * @param {string} text
 * @returns {Series}
 */
export function parse(text) {
  const brace = text.indexOf("{");
  if (brace < 0) return { text, name: text, labels: {} };
  /** @type {Labels} */
  const labels = {};
  for (const [, key, value] of text.slice(brace).matchAll(LABEL)) {
    labels[key.replace(/^,/, "")] = value.replace(/\\(.)/g, (_, char) => (char === "n" ? "\n" : char));
  }
  return { text, name: text.slice(0, brace), labels };
}

/**
 * The text of a series, as the stream and the lists write it.
 * @param {string} name
 * @param {Labels} labels
 */
export function textOf(name, labels) {
  const pairs = Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1));
  if (pairs.length === 0) return name;
  const escaped = (/** @type {string} */ value) =>
    value.replace(/\\/g, "\\\\").replace(/"/g, '\\"').replace(/\n/g, "\\n");
  return `${name}{${pairs.map(([key, value]) => `${key}="${escaped(value)}"`).join(",")}}`;
}

/**
 * Returns a test for names; the pattern may contain `*`.
 * @param {string} pattern
 * @returns {(name: string) => boolean}
 */
export function nameTest(pattern) {
  if (!pattern.includes("*")) return (name) => name === pattern;
  const escaped = pattern.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&"));
  const expression = new RegExp(`^${escaped.join(".*")}$`);
  return (name) => expression.test(name);
}

/**
 * Formats labels as a short text: values only, if that is unambiguous.
 * @param {Labels} labels
 * @param {string[]} [keys]
 */
export function labelText(labels, keys) {
  const wanted = (keys ?? Object.keys(labels)).filter(
    (key) => labels[key] !== undefined && labels[key] !== "",
  );
  if (wanted.length === 1 && keys) return labels[wanted[0]];
  return wanted.map((key) => `${key}=${labels[key]}`).join(" ");
}

const OF_NODE =
  /^(node_|pegel_)|^(cpu_percent|load_average|used_RAM|num_running_processes|DeviceUtilization|DeviceMemoryUtilization|DevicePowerUsage)$/;

/** Whether the agent itself collects a metric; all others come from programs. @param {string} name */
export function isOfNode(name) {
  return OF_NODE.test(name);
}
