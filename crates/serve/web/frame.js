// The data of one chart: a grid of time cells, and a column of values for each group of series.
//
// The store fills the grid; the stream extends it cell by cell, and cells that leave the window are dropped. So a
// frame has the same size after a minute and after a day.

import { last, mean } from "./columns.js";
import { labelText, nameTest, textOf } from "./series.js";

/**
 * @typedef {import("./live.js").Entry} Entry
 * @typedef {import("./history.js").Past} Past
 * @typedef {(number | null)[]} Column
 */

/**
 * Selects series, and defines how they are combined.
 * @typedef {object} Query
 * @property {string} name may contain `*`
 * @property {string} [pattern] the pattern requested from the agent, if it differs from the name
 * @property {(labels: Record<string, string>) => boolean} [where]
 * @property {boolean} [rate] per second
 * @property {boolean} [sparse] the counter is stored only when it changes, as those of programs are; needs `rate`
 * @property {number} [most] the maximum number of groups, 64 if missing
 * @property {string[]} [by] labels that define groups; all labels if missing
 * @property {"sum" | "avg" | "min" | "max"} [fold] how the series of one group are combined
 * @property {(value: number) => number} [map] applied to each series
 * @property {string} [label] of the group; `$name` and `$key` stand for the name and a label's value
 * @property {string} [key] identifies groups in computations
 */

/**
 * @typedef {object} Group
 * @property {string} id
 * @property {string} label
 * @property {string} key
 * @property {Record<string, string>} labels
 * @property {Query} query
 * @property {Track[]} tracks
 * @property {Column} data
 * @property {number} of the ticks in the current cell
 * @property {number} count
 * @property {number} back the number of cells that the next value covers
 * @property {[number, number][]} ring the values of the last seconds, with their times
 * @property {number} partial of a sparse counter: its increase in the last cell
 */

/**
 * @typedef {object} Track
 * @property {string} text
 * @property {Group} group
 * @property {Entry | null} entry
 * @property {number} interval between two samples
 * @property {number | null} lastTime
 * @property {number} lastValue
 * @property {number} seen time of the last change that was processed
 * @property {number} late how much later than others it arrives
 * @property {number | null} current its current contribution to its group
 */

const TRACKS_MAX = 4096;
/** Lines of one query that a chart can show. */
const GROUPS_MAX = 64;
/** The time over which single numbers are averaged. */
const RECENT_MS = 5000;
/** Gaps of up to this many cells are bridged: a late event is not an outage. */
const BRIDGE_CELLS = 3;

export class Frame {
  /** @param {Query[]} queries */
  constructor(queries) {
    this.queries = queries.map((query) => ({ query, fits: nameTest(query.name) }));
    this.patterns = [...new Set(queries.map((query) => query.pattern ?? query.name))];
    this.step = 500;
    this.rate = 500;
    this.first = 0;
    this.count = 0;
    /** @type {number[]} */
    this.times = [];
    /** @type {Map<string, Group>} */
    this.groups = new Map();
    /** @type {Map<string, Track>} */
    this.tracks = new Map();
    /** Groups and series beyond the limits. @type {Set<string>} */
    this.leftOut = new Set();
    /** @type {Map<Query, number>} */
    this.groupCounts = new Map();
  }

  /** The index of the last cell. */
  get last() {
    return this.first + this.count - 1;
  }

  /**
   * Clears the frame and sets another grid.
   * @param {number} from
   * @param {number} to
   * @param {number} step
   * @param {number} rate
   */
  reset(from, to, step, rate) {
    this.step = step;
    this.rate = rate;
    this.first = Math.floor(from / step);
    this.count = Math.floor(to / step) - this.first + 1;
    this.times = Array.from({ length: this.count }, (_, at) => ((this.first + at) * step) / 1000);
    this.groups.clear();
    this.tracks.clear();
    this.leftOut.clear();
    this.groupCounts.clear();
  }

  /**
   * Fills the grid. The request must start at least one step before the grid, for rates.
   * @param {Past[]} answer
   * @param {number} newest
   * @param {Past[]} [base] of sparse counters: the last value before the answer
   * @param {number} [begin] of the answer for sparse counters
   */
  load(answer, newest, base = [], begin = 0) {
    this.#each(base, true, (track, points) => this.#start(track, points, begin));
    this.#each(answer, true, (track, points) => this.#fillSparse(track, points, newest));
    this.#each(answer, false, (track, points) => this.#fill(track, points, newest));
    for (const group of this.groups.values()) this.#average(group);
  }

  /** @param {Past[]} answer @param {boolean} sparse @param {(track: Track, points: Past["points"]) => void} use */
  #each(answer, sparse, use) {
    for (const series of answer) {
      for (const { query, fits } of this.queries) {
        if (!!query.sparse !== sparse || !fits(series.name)) continue;
        if (query.where && !query.where(series.labels)) continue;
        const track = this.#track(query, series.name, series.labels, textOf(series.name, series.labels));
        if (track) use(track, series.points);
      }
    }
  }

  /** Sets the value of a sparse counter before the grid. @param {Track} track @param {Past["points"]} points @param {number} begin */
  #start(track, points, begin) {
    track.lastValue = points[points.length - 1]?.[1] ?? 0;
    this.#zero(track.group, this.#cell(begin));
  }

  /**
   * Fills the increases of a sparse counter: each belongs to the cell of its sample. A counter without an earlier
   * value began at zero.
   * @param {Track} track
   * @param {Past["points"]} points
   * @param {number} newest
   */
  #fillSparse(track, points, newest) {
    if (points.length > 0) this.#zero(track.group, this.#cell(points[0][0]) - 1);
    for (const [time, value] of points) if (value !== null) this.#increase(track, time, value);
    track.seen = newest;
    this.#partial(track.group, newest);
  }

  /** @param {Group} group @param {number} from */
  #zero(group, from) {
    for (let at = Math.max(from, 0); at < this.count; at += 1) group.data[at] ??= 0;
  }

  /** @param {Track} track @param {number} time @param {number} value */
  #increase(track, time, value) {
    // A counter that decreased was reset.
    const more = value >= track.lastValue ? value - track.lastValue : value;
    track.lastValue = value;
    const cell = Math.min(this.#cell(time), this.count - 1);
    if (cell < 0) return;
    const { data, query } = track.group;
    if (cell === this.count - 1) track.group.partial += more;
    else data[cell] = (data[cell] ?? 0) + this.#mapped(query, (more / this.step) * 1000);
  }

  /** Shows the increase in the last cell as a rate over the part of the cell that has passed. @param {Group} group @param {number} at */
  #partial(group, at) {
    const passed = Math.min(Math.max(at - this.last * this.step + this.rate, this.rate), this.step);
    group.data[this.count - 1] = this.#mapped(group.query, (group.partial / passed) * 1000);
  }

  /** @param {Track} track @param {Past["points"]} all @param {number} newest */
  #fill(track, all, newest) {
    const end = Math.min(this.#cell(newest), this.count - 1);
    // The answer may be newer than the stream, which then brings these samples again.
    const points = all.filter(([time]) => this.#cell(time) <= end);
    // The usual interval: the first sample after the start of an agent is closer to the second.
    const gaps = Float64Array.from(points.slice(1), ([time], at) => time - points[at][0]).sort();
    const usual = gaps[gaps.length >> 1] ?? 0;
    track.interval = usual > this.step * 1.01 ? usual : this.rate;
    const reach = Math.max(track.interval * 2.5, this.step * BRIDGE_CELLS);
    if (track.group.query.rate) this.#fillRates(track, points, newest, reach, end);
    else this.#fillValues(track, points, newest, reach, end);
  }

  /** @param {number} time */
  #cell(time) {
    return Math.floor(time / this.step) - this.first;
  }

  /**
   * Fills values: a sample is valid until the next one.
   * @param {Track} track
   * @param {Past["points"]} points
   * @param {number} newest
   * @param {number} reach
   * @param {number} end
   */
  #fillValues(track, points, newest, reach, end) {
    points.forEach(([time, value], at) => {
      if (value === null) return;
      const here = this.#cell(time);
      const next = at + 1 < points.length ? points[at + 1][0] : newest + this.step;
      const until = next - time <= reach ? this.#cell(next) - 1 : here;
      const mapped = this.#mapped(track.group.query, value);
      for (let to = Math.max(here, 0); to <= Math.min(Math.max(until, here), end); to += 1)
        this.#add(track, to, mapped);
      if (at === points.length - 1 && newest - time <= reach) track.current = mapped;
    });
  }

  /**
   * Fills rates: a counter sample covers the time since the previous one.
   * @param {Track} track
   * @param {Past["points"]} points
   * @param {number} newest
   * @param {number} reach
   * @param {number} end
   */
  #fillRates(track, points, newest, reach, end) {
    points.forEach(([time, value], at) => {
      if (at === 0 || value === null) return;
      const [before, previous] = points[at - 1];
      if (previous === null || value < previous || time - before > reach) return;
      const elapsed = this.#elapsed(track, before, time, newest);
      const rate = this.#mapped(track.group.query, ((value - previous) / elapsed) * 1000);
      const here = this.#cell(time);
      const isLast = at === points.length - 1;
      const held = isLast ? Math.ceil(track.interval / this.step) - 1 : 0;
      for (let to = Math.max(this.#cell(before) + 1, 0); to <= Math.min(here + held, end); to += 1)
        this.#add(track, to, rate);
      if (isLast && newest - time <= reach) track.current = rate;
    });
    const tail = points[points.length - 1];
    // Within a longer step the time of the last sample is unknown until the first tick.
    const isExact = this.step <= this.rate * 1.01 || track.interval > this.step * 1.01;
    if (isExact && tail && tail[1] !== null && newest - tail[0] <= reach)
      this.#remember(track, tail[0], tail[1]);
  }

  /**
   * The time between the samples that two points represent. In an incomplete step, the last sample is the newest one.
   * @param {Track} track
   * @param {number} before
   * @param {number} time
   * @param {number} newest
   */
  #elapsed(track, before, time, newest) {
    if (track.interval > this.step * 1.01) return time - before;
    const last = this.step - this.rate;
    return Math.max(Math.min(time + last, newest) - (before + last), this.rate);
  }

  /** @param {Track} track @param {number} time @param {number} value */
  #remember(track, time, value) {
    track.lastTime = time;
    track.lastValue = value;
    track.seen = time;
  }

  /** @param {Query} query @param {number} value */
  #mapped(query, value) {
    return query.map ? query.map(value) : value;
  }

  /** @param {Track} track @param {number} at @param {number} value */
  #add(track, at, value) {
    const { data, query, counts } = /** @type {Group & {counts: Uint16Array}} */ (track.group);
    const before = data[at];
    if (before === null || before === undefined) data[at] = value;
    else if (query.fold === "max") data[at] = Math.max(before, value);
    else if (query.fold === "min") data[at] = Math.min(before, value);
    else data[at] = before + value;
    counts[at] += 1;
  }

  /** @param {Group} group */
  #average(group) {
    const { data, query, counts } = /** @type {Group & {counts: Uint16Array}} */ (group);
    if (query.fold !== "avg") return;
    for (let at = 0; at < data.length; at += 1) {
      const value = data[at];
      if (value !== null && counts[at] > 1) data[at] = value / counts[at];
    }
    counts.fill(0);
  }

  /**
   * @param {Query} query
   * @param {string} name
   * @param {Record<string, string>} labels
   * @param {string} text
   * @returns {Track | null}
   */
  #track(query, name, labels, text) {
    const index = this.queries.findIndex((known) => known.query === query);
    const known = this.tracks.get(`${index} ${text}`);
    if (known) return known;
    const keys = query.by ?? Object.keys(labels).sort();
    const id = `${index} ${query.by ? "" : name} ${keys.map((key) => `${key}=${labels[key] ?? ""}`).join(",")}`;
    let group = this.groups.get(id);
    if (!group) {
      const count = this.groupCounts.get(query) ?? 0;
      if (count >= (query.most ?? GROUPS_MAX)) {
        this.leftOut.add(id);
        return null;
      }
      this.groupCounts.set(query, count + 1);
      group = /** @type {any} */ ({
        id,
        label: groupLabel(query, name, labels, keys),
        key: query.key ?? "",
        labels: Object.fromEntries(keys.map((key) => [key, labels[key] ?? ""])),
        query,
        tracks: [],
        data: new Array(this.count).fill(null),
        counts: new Uint16Array(this.count),
        sum: 0,
        count: 0,
        back: 0,
        ring: [],
        partial: 0,
      });
      this.groups.set(id, /** @type {Group} */ (group));
    }
    if (this.tracks.size >= TRACKS_MAX) {
      this.leftOut.add(text);
      return null;
    }
    /** @type {Track} */
    const track = {
      text,
      group: /** @type {Group} */ (group),
      entry: null,
      interval: this.rate,
      lastTime: null,
      lastValue: 0,
      seen: 0,
      late: 0,
      current: null,
    };
    /** @type {Group} */ (group).tracks.push(track);
    this.tracks.set(`${index} ${text}`, track);
    return track;
  }

  /** Resets the entries: a new stream begins, which announces them again. */
  restart() {
    for (const track of this.tracks.values()) track.entry = null;
  }

  /**
   * Adds a series of the stream.
   * @param {Entry} entry
   */
  meet(entry) {
    for (const { query, fits } of this.queries) {
      if (!fits(entry.name) || (query.where && !query.where(entry.labels))) continue;
      const track = this.#track(query, entry.name, entry.labels, entry.text);
      if (track) track.entry = entry;
    }
  }

  /**
   * Advances to a time of the stream.
   * @param {number} at
   * @returns {boolean} whether it left a gap that only the store can fill
   */
  tick(at) {
    if (this.count === 0) return false;
    const cell = Math.floor(at / this.step);
    const ahead = cell - this.last;
    if (ahead < 0) return false;
    if (ahead > 0) this.#advance(ahead);
    /** @type {Set<Group>} */
    const sampled = new Set();
    for (const track of this.tracks.values()) if (this.#step(track, at)) sampled.add(track.group);
    const bridge = ahead <= BRIDGE_CELLS ? Math.max(ahead, 1) : 1;
    for (const group of this.groups.values()) {
      if (group.query.sparse) {
        this.#partial(group, at);
        continue;
      }
      const value = folded(group);
      if (value !== null) group.ring.push([at, value]);
      while (group.ring.length > 0 && group.ring[0][0] <= at - RECENT_MS) group.ring.shift();
      const cells = Math.min(Math.max(bridge, group.back), this.count);
      group.back = 0;
      if (value === null) continue;
      // The clock may arrive one event before the sample: until then the previous value is shown.
      if (sampled.has(group)) {
        group.sum += value;
        group.count += 1;
      }
      const mean = group.count > 0 ? group.sum / group.count : value;
      for (let back = 1; back <= cells; back += 1) group.data[this.count - back] = mean;
    }
    return ahead > BRIDGE_CELLS;
  }

  /** @param {number} cells */
  #advance(cells) {
    this.first += cells;
    const fresh = Math.min(cells, this.count);
    for (let at = 0; at < fresh; at += 1) {
      this.times.shift();
      this.times.push(((this.first + this.count - fresh + at) * this.step) / 1000);
    }
    for (const group of this.groups.values()) {
      const { sparse } = group.query;
      if (sparse) group.data[this.count - 1] = this.#mapped(group.query, (group.partial / this.step) * 1000);
      group.partial = 0;
      group.sum = 0;
      group.count = 0;
      for (let at = 0; at < fresh; at += 1) {
        group.data.shift();
        group.data.push(sparse ? 0 : null);
      }
    }
  }

  /**
   * @param {Track} track
   * @param {number} at
   * @returns {boolean} whether the series has a sample for this time
   */
  #step(track, at) {
    const { entry } = track;
    const { query } = track.group;
    if (!entry) return false;
    if (query.sparse) {
      // The store may already have had a change that the stream announces later.
      const isNew = entry.ts > track.seen || (entry.value ?? 0) > track.lastValue;
      if (isNew && entry.value !== null) this.#increase(track, entry.ts, entry.value);
      track.seen = Math.max(track.seen, entry.ts);
      return isNew;
    }
    if (!query.rate) {
      track.current = entry.value === null ? null : this.#mapped(query, entry.value);
      return true;
    }
    if (entry.value === null) return false;
    if (track.lastTime === null) {
      this.#remember(track, Math.max(entry.ts, at - track.interval), entry.value);
      track.seen = entry.ts;
      return false;
    }
    const isSlow = track.interval > this.rate * 1.5;
    if (entry.ts > track.seen) {
      const since = entry.ts > track.lastTime ? entry.ts - track.lastTime : track.interval;
      const more = entry.value - track.lastValue;
      // A counter that decreased was reset.
      track.current = more >= 0 ? this.#mapped(query, (more / since) * 1000) : null;
      // Samples of programs are stored shortly after the node's own samples.
      if (at - entry.ts <= this.rate * 2) track.late = Math.max(track.late, at - entry.ts);
      // A slow or late sample covers all the time since the previous one.
      const tells = isSlow || track.late > 0 ? Math.round((at - track.lastTime) / this.step) : 0;
      track.group.back = Math.max(track.group.back, tells);
      this.#remember(track, Math.max(entry.ts, track.lastTime), entry.value);
      track.seen = entry.ts;
      return true;
    }
    if (at - track.lastTime >= track.interval + (isSlow ? this.rate * 1.5 : track.late)) {
      // It was sampled again and is unchanged.
      track.current = this.#mapped(query, 0);
      track.lastTime += Math.floor((at - track.late - track.lastTime) / track.interval) * track.interval;
      return true;
    }
    return false;
  }

  /**
   * The means of the last seconds, as a grid of one cell: what a number beside a chart shows. A single sample of a
   * bursty rate says little.
   */
  recent() {
    const cells = Math.max(Math.ceil(RECENT_MS / this.step), 1);
    const groups = [...this.groups.values()].map((group) => {
      const { ring } = group;
      const isFull = ring.length > 1 && ring[ring.length - 1][0] - ring[0][0] >= RECENT_MS * 0.6;
      const value = isFull
        ? ring.reduce((sum, [, each]) => sum + each, 0) / ring.length
        : (mean(group.data.slice(-cells)) ?? last(group.data));
      return { ...group, data: [value] };
    });
    return {
      times: [this.times[this.count - 1]],
      lines: (/** @type {string} */ key) =>
        key === undefined ? groups : groups.filter((group) => group.key === key),
    };
  }

  /**
   * The groups with a key, or all groups.
   * @param {string} [key]
   */
  lines(key) {
    const all = [...this.groups.values()];
    return key === undefined ? all : all.filter((group) => group.key === key);
  }
}

/** @param {Group} group */
function folded(group) {
  let value = null;
  let count = 0;
  for (const { current } of group.tracks) {
    if (current === null) continue;
    count += 1;
    if (value === null) value = current;
    else if (group.query.fold === "max") value = Math.max(value, current);
    else if (group.query.fold === "min") value = Math.min(value, current);
    else value += current;
  }
  return value !== null && group.query.fold === "avg" ? value / count : value;
}

/**
 * @param {Query} query
 * @param {string} name
 * @param {Record<string, string>} labels
 * @param {string[]} keys
 */
function groupLabel(query, name, labels, keys) {
  if (query.label !== undefined) {
    return (
      query.label.replace(/\$(\w+)/g, (_, key) => (key === "name" ? name : (labels[key] ?? ""))).trim() ||
      name
    );
  }
  const text = labelText(labels, keys);
  if (query.name.includes("*") && !query.by) return text ? `${name} ${text}` : name;
  return text || name;
}
