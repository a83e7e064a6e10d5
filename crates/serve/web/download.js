// Saves a chart to a file: its values as CSV, its image as PNG.

import { colour, lineColour } from "./theme.js";
import { moment, number } from "./format.js";

/** @typedef {import("./chart.js").Line} Line */

/** Pixels of a saved picture per pixel of the page: at least two, so that it can be printed. */
export const PICTURE_RATIO = Math.max(globalThis.devicePixelRatio, 2);

/** @param {Blob} blob @param {string} name */
function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** @param {string} title @param {string} ending */
function fileName(title, ending) {
  const node = document.getElementById("node")?.textContent ?? "";
  return `${`pegel ${node} ${title}`
    .toLowerCase()
    .replace(/[^a-z0-9.]+/g, "-")
    .replace(/^-|-$/g, "")}.${ending}`;
}

/** @param {string} text */
function quoted(text) {
  return /[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

/** A number without the noise of binary fractions. @param {number | null | undefined} value */
function plain(value) {
  return value === null || value === undefined ? "" : Number(value.toPrecision(15));
}

/**
 * @param {number[]} times in seconds
 * @param {Line[]} lines
 */
export function csv(times, lines) {
  const rows = [["time", "ms", ...lines.map((line) => quoted(line.label))].join(",")];
  times.forEach((time, at) => {
    const values = lines.map((line) => line.data[at]);
    if (values.every((value) => value === null || value === undefined)) return;
    const millis = Math.round(time * 1000);
    rows.push([new Date(millis).toISOString(), millis, ...values.map(plain)].join(","));
  });
  return `${rows.join("\n")}\n`;
}

/** @param {string} title @param {number[]} times @param {Line[]} lines */
export function saveCsv(title, times, lines) {
  save(new Blob([csv(times, lines)], { type: "text/csv" }), fileName(title, "csv"));
}

/**
 * @param {string} title
 * @param {HTMLCanvasElement} drawing in `PICTURE_RATIO` pixels per pixel of the page
 * @param {Line[]} lines
 * @param {string} unit
 * @param {[number, number]} bounds
 */
export function savePng(title, drawing, lines, unit, bounds) {
  const ratio = PICTURE_RATIO;
  const [drawnWidth, drawnHeight] = [drawing.width / ratio, drawing.height / ratio];
  const shown = lines.filter((line) => !line.hidden).slice(0, 12);
  const canvas = document.createElement("canvas");
  const [width, head, row] = [drawnWidth + 24, 46, 18];
  const perRow = Math.max(Math.floor(width / 220), 1);
  const height = head + drawnHeight + Math.ceil(shown.length / perRow) * row + 14;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const paint = canvas.getContext("2d");
  if (!paint) return;
  paint.scale(ratio, ratio);
  paint.fillStyle = colour("card");
  paint.fillRect(0, 0, width, height);
  paint.fillStyle = colour("text");
  paint.font = "600 14px system-ui, sans-serif";
  paint.fillText(title, 12, 22);
  paint.fillStyle = colour("faint-text");
  paint.font = "11px system-ui, sans-serif";
  const node = document.getElementById("node")?.textContent ?? "";
  paint.fillText(`${node} · ${moment(bounds[0], 0)} to ${moment(bounds[1], 0)}`, 12, 38);
  paint.drawImage(drawing, 12, head, drawnWidth, drawnHeight);
  shown.forEach((line, at) => {
    const x = 12 + (at % perRow) * 220;
    const y = head + drawnHeight + 16 + Math.floor(at / perRow) * row;
    paint.fillStyle = line.colour ?? lineColour(lines.indexOf(line));
    paint.fillRect(x, y - 8, 10, 10);
    paint.fillStyle = colour("text");
    const last = line.data.findLast((value) => value !== null);
    paint.fillText(`${line.label}  ${number(last, unit)}`.slice(0, 34), x + 15, y + 1);
  });
  canvas.toBlob((blob) => blob && save(blob, fileName(title, "png")));
}
