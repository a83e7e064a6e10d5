// The life cycle of a frame: it is loaded when its element becomes visible, updated by the stream, and reloaded when
// the time window moves, after a gap in the stream, and periodically.

import { Frame } from "./frame.js";
import { past, WHOLE_MS } from "./history.js";
import { watch } from "./live.js";
import { bounds, fitStep, isLive, onMove, stretch } from "./window.js";

/**
 * @typedef {object} Drawer
 * @property {() => number} width in pixels
 * @property {() => void} draw
 * @property {() => void} [slide] the window moved; the data follows later
 */

const RELOAD_MS = 120e3;
const REDRAW_MS = 2e3;
/** Slow series have few samples: their last one may precede the window. */
const LEAD_MS = 30e3;

/** @type {Set<Feed>} */
const active = new Set();
/** @type {Map<Element, Feed>} */
const observed = new Map();
const sight = new IntersectionObserver(
  (changes) => {
    for (const change of changes) observed.get(change.target)?.inSight(change.isIntersecting);
  },
  { rootMargin: "200px 0px" },
);

// Corrects series that ended, and differences between the stream and the store.
setInterval(() => {
  if (!document.hidden && isLive()) for (const feed of active) feed.reload();
}, RELOAD_MS);

let drawing = 0;
/** @type {Set<Feed>} */
const toDraw = new Set();

function drawAll() {
  drawing = 0;
  const feeds = [...toDraw];
  toDraw.clear();
  for (const feed of feeds) if (feed.started && feed.visible) feed.drawer.draw();
}

export class Feed {
  /**
   * @param {import("./frame.js").Query[]} queries
   * @param {Element} element
   * @param {Drawer} drawer
   */
  constructor(queries, element, drawer) {
    this.queries = queries;
    this.element = element;
    this.drawer = drawer;
    this.frame = new Frame(queries);
    this.visible = false;
    this.started = false;
    this.loaded = false;
    /** @type {string | null} */
    this.failure = null;
    this.loading = 0;
    this.moving = 0;
    this.drawn = 0;
    this.stopWatching = () => {};
    this.stopMoving = onMove(() => this.#moved());
    observed.set(element, this);
    sight.observe(element);
  }

  /** @param {boolean} visible */
  inSight(visible) {
    this.visible = visible;
    if (!visible) return;
    if (this.started) this.drawSoon();
    else {
      this.started = true;
      active.add(this);
      this.reload();
    }
  }

  drawSoon() {
    toDraw.add(this);
    drawing ||= requestAnimationFrame(drawAll);
  }

  #moved() {
    if (!this.started) return;
    if (this.loaded && this.visible) this.drawer.slide?.();
    clearTimeout(this.moving);
    this.moving = setTimeout(() => this.reload(), 120);
  }

  /** Loads the whole window from the store. */
  async reload() {
    if (!this.started) return;
    const number = (this.loading += 1);
    const [from, to] = bounds();
    // The stream has two events per second, however often the agent samples.
    const rate = isLive() ? Math.max(stretch.rate, 500) : stretch.rate;
    const step = fitStep(to - from, this.drawer.width() || 400, rate);
    const start = (Math.floor(from / step) - 1) * step - (step < LEAD_MS ? LEAD_MS : 0);
    try {
      const sparse = this.queries.some((query) => query.sparse);
      // Values in the first samples of the store were counted before them.
      const begin = Math.max(start, (stretch.oldest ?? 0) + 2 * stretch.rate);
      // A late sample of the newest tick is after it.
      const end = isLive() ? to + rate : to;
      const [answer, base] = await Promise.all([
        past(this.frame.patterns, sparse ? begin + 1 : start, end, step),
        sparse ? past(this.frame.patterns, 0, begin, WHOLE_MS) : [],
      ]);
      if (number !== this.loading) return;
      const frame = new Frame(this.queries);
      frame.reset(from, to, step, rate);
      frame.load(answer, Math.min(to, stretch.now), base, begin);
      this.frame = frame;
      this.loaded = true;
      this.failure = null;
      this.#follow(frame);
    } catch (error) {
      if (number !== this.loading) return;
      this.failure = error instanceof Error ? error.message : String(error);
      this.#follow(this.frame);
    }
    this.drawSoon();
  }

  /** @param {Frame} frame */
  #follow(frame) {
    this.stopWatching();
    this.stopWatching = () => {};
    if (!isLive()) return;
    this.stopWatching = watch({
      patterns: frame.patterns,
      meet: (entry) => frame.meet(entry),
      restart: () => frame.restart(),
      resync: () => this.reload(),
      tick: (at) => {
        const cell = frame.last;
        if (frame.tick(at)) this.reload();
        // Within a cell little changes: redrawing it occasionally is enough.
        if (!this.visible || (frame.last === cell && at - this.drawn < REDRAW_MS)) return;
        this.drawn = at;
        this.drawSoon();
      },
    });
  }

  dispose() {
    this.loading += 1;
    this.started = false;
    active.delete(this);
    toDraw.delete(this);
    observed.delete(this.element);
    sight.unobserve(this.element);
    clearTimeout(this.moving);
    this.stopWatching();
    this.stopMoving();
  }
}
