// Creates elements. Text is always inserted as text: nothing that an agent sends becomes markup.

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {Record<string, any>} Properties
 */

/**
 * Creates an element. `class`, `text` and `on` (a map of listeners) are special; other properties are attributes.
 * @param {string} tag
 * @param {Properties} [properties]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") element.className = value;
    else if (key === "text") element.textContent = String(value);
    else if (key === "on")
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (key === "value") /** @type {any} */ (element).value = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {any[]} children
 */
function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : String(child));
    }
  }
}

/**
 * Sets the text only if it differs, to avoid needless layout.
 * @param {Element} element
 * @param {string} text
 */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** @param {string} id @returns {any} */
export function byId(id) {
  return document.getElementById(id);
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * Creates a small line chart without axes.
 * @param {(number | null)[]} values
 * @param {{width?: number, height?: number, label?: string, max?: number, min?: number}} [options]
 */
export function sparkline(values, options = {}) {
  const { width = 120, height = 28, label = "" } = options;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("class", "spark");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("class", "spark-line");
  const area = document.createElementNS(SVG, "path");
  area.setAttribute("class", "spark-area");
  svg.append(area, line);
  redraw(svg, values, options);
  return svg;
}

/**
 * @param {SVGElement} svg
 * @param {(number | null)[]} values
 * @param {{max?: number, min?: number}} [options]
 */
export function redraw(svg, values, options = {}) {
  const [, , width, height] = (svg.getAttribute("viewBox") ?? "0 0 120 28").split(" ").map(Number);
  const known = /** @type {number[]} */ (values.filter((value) => value !== null && Number.isFinite(value)));
  const low = options.min ?? Math.min(0, ...known);
  const high = Math.max(options.max ?? 0, ...known, low + 1e-12);
  const x = (/** @type {number} */ at) => ((at / Math.max(values.length - 1, 1)) * width).toFixed(1);
  const y = (/** @type {number} */ value) =>
    (height - 1 - ((value - low) / (high - low)) * (height - 2)).toFixed(1);
  let path = "";
  let fill = "";
  let start = -1;
  const close = (/** @type {number} */ end) => {
    if (start >= 0) fill += `L${x(end)},${height}L${x(start)},${height}Z`;
    start = -1;
  };
  values.forEach((value, at) => {
    if (value === null || !Number.isFinite(value)) return close(at - 1);
    const point = `${x(at)},${y(value)}`;
    path += (start < 0 ? "M" : "L") + point;
    fill += (start < 0 ? "M" : "L") + point;
    if (start < 0) start = at;
  });
  close(values.length - 1);
  svg.querySelector(".spark-line")?.setAttribute("d", path);
  svg.querySelector(".spark-area")?.setAttribute("d", fill);
}
