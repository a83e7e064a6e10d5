// Formats numbers and times for display.

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DECIMAL = ["", "k", "M", "G", "T", "P", "E"];

/** @param {number} value */
function digits(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  const places = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.995 ? 2 : size >= 0.01 ? 3 : 4;
  if (size < 0.0001) return value.toExponential(1);
  const text = value.toFixed(places);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/**
 * @param {number} value
 * @param {number} base
 * @param {string[]} units
 */
function scaled(value, base, units) {
  let at = 0;
  let size = Math.abs(value);
  while (size >= base * 0.9995 && at < units.length - 1) {
    size /= base;
    at += 1;
  }
  return [digits(value / base ** at), units[at]];
}

/** @param {number} seconds */
function shortTime(seconds) {
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size < 1e-6) return `${digits(seconds * 1e9)} ns`;
  if (size < 1e-3) return `${digits(seconds * 1e6)} µs`;
  if (size < 1) return `${digits(seconds * 1e3)} ms`;
  if (size < 120) return `${digits(seconds)} s`;
  return duration(seconds * 1000);
}

/** Formats seconds per second. @param {number} value */
function perSecondTime(value) {
  const size = Math.abs(value);
  return size >= 0.1 || size === 0 ? `${digits(value)} s/s` : `${shortTime(value)}/s`;
}

/** Formats a share in percent: small ones keep two places. @param {number} value */
function percent(value) {
  if (value > 0 && value < 0.01) return "< 0.01";
  return digits(Math.round(value * 100) / 100);
}

/**
 * Formats a value with its unit. Units of rates end in `/s`.
 * @param {number | null | undefined} value
 * @param {string} [unit]
 * @returns {string}
 */
export function number(value, unit = "") {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const perSecond = unit.endsWith("/s") ? "/s" : "";
  const base = perSecond ? unit.slice(0, -2) : unit;
  switch (base) {
    case "bytes": {
      const [text, prefix] = scaled(value, 1024, BINARY);
      return `${text} ${prefix}${perSecond}`;
    }
    case "bits": {
      const [text, prefix] = scaled(value, 1000, DECIMAL);
      return `${text} ${prefix}bit${perSecond}`;
    }
    case "%":
      return `${percent(value)} %${perSecond}`;
    case "ratio":
      return `${digits(value * 100)} %`;
    case "seconds":
      return perSecond ? perSecondTime(value) : shortTime(value);
    case "celsius":
      return `${digits(value)} °C`;
    case "watts":
    case "joules":
    case "hertz":
    case "volts":
    case "amps": {
      const [text, prefix] = scaled(value, 1000, DECIMAL);
      const sign = { watts: "W", joules: "J", hertz: "Hz", volts: "V", amps: "A" }[base];
      return `${text} ${prefix}${base === "joules" && perSecond ? "W" : sign + perSecond}`;
    }
    default: {
      const [text, prefix] = scaled(value, 1000, DECIMAL);
      const tail = base ? ` ${base}` : "";
      return `${text}${prefix && ` ${prefix}`}${tail}${perSecond}`;
    }
  }
}

/**
 * Formats a duration in at most two parts: `3 d 4 h`.
 * @param {number} millis
 */
export function duration(millis) {
  const seconds = Math.round(millis / 1000);
  if (millis < 1000 && millis > 0) return `${Math.round(millis)} ms`;
  const parts = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => Number(count) > 0);
  if (first < 0) return "0 s";
  return parts
    .slice(first, first + 2)
    .filter(([count]) => Number(count) > 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(" ");
}

/** @param {number} count */
function two(count) {
  return String(count).padStart(2, "0");
}

/** @param {number} millis */
export function clock(millis) {
  const date = new Date(millis);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** @param {number} millis */
export function day(millis) {
  const date = new Date(millis);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/**
 * Formats a time, with its date unless that is today.
 * @param {number} millis
 * @param {number} [now]
 */
export function moment(millis, now = Date.now()) {
  return day(millis) === day(now) ? clock(millis) : `${day(millis)} ${clock(millis)}`;
}

/** @param {number} count */
export function whole(count) {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+(?!\d))/g, " ");
}

/** The name of the browser's time zone at a time: `UTC`, `CET`. @param {number} millis */
export function zone(millis) {
  const parts = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" }).formatToParts(millis);
  return parts.find((part) => part.type === "timeZoneName")?.value ?? "";
}
