// A heat map in the area of a chart: one row per line, one column per cell of time, the colour is the value.

import { colour } from "./theme.js";

/** @typedef {import("./chart.js").Line} Line */

/** Colours of the style sheet, from the lowest value to the highest. */
const SCALE = ["heat-0", "heat-1", "heat-2", "heat-3", "heat-4"];
export const STEPS = 64;
/** Rows of more pixels are separated by a line. */
const GAP_FROM = 8;

/** @param {string} hex `#rrggbb` */
function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** Colours for values from 0 to 1, in `STEPS` steps: red, green, blue. */
export function palette() {
  const stops = SCALE.map((name) => channels(colour(name)));
  return Array.from({ length: STEPS + 1 }, (_, at) => {
    const place = (at / STEPS) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((from, part) => Math.round(from + (stops[low + 1][part] - from) * (place - low)));
  });
}

/**
 * Draws the lines into the plot's area. The picture has one pixel per value and is enlarged without smoothing, so
 * that its cost does not depend on the size of the chart.
 * @param {any} plot
 * @param {number[]} times in seconds
 * @param {Line[]} lines
 * @param {number} max the value of the last colour
 */
export function drawHeat(plot, times, lines, max) {
  if (times.length < 2 || lines.length === 0) return;
  const colours = palette();
  const image = new ImageData(times.length, lines.length);
  lines.forEach(({ data }, row) => {
    for (let at = 0; at < times.length; at += 1) {
      const value = data[at];
      if (value === null || value === undefined) continue;
      const step = Math.round(Math.min(Math.max(value / max, 0), 1) * STEPS);
      image.data.set(colours[step], (row * times.length + at) * 4);
      image.data[(row * times.length + at) * 4 + 3] = 255;
    }
  });
  const small = document.createElement("canvas");
  small.width = times.length;
  small.height = lines.length;
  small.getContext("2d")?.putImageData(image, 0, 0);
  const { ctx, bbox } = plot;
  const step = times[1] - times[0];
  const left = plot.valToPos(times[0], "x", true);
  const right = plot.valToPos(times[times.length - 1] + step, "x", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(small, left, bbox.top, right - left, bbox.height);
  const height = bbox.height / lines.length;
  ctx.fillStyle = colour("card");
  for (let row = 1; height > GAP_FROM && row < lines.length; row += 1)
    ctx.fillRect(bbox.left, bbox.top + row * height - 1, bbox.width, 2);
  ctx.restore();
}
