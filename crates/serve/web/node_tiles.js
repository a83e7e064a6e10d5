// A grid of tiles, one per node, coloured by a value. A tile is a link to the page of its node. Tiles are created once,
// and an update changes only what differs. Small tiles, of which there may be thousands, get their colours from one
// canvas behind the links: the style of two thousand elements takes much longer than as many rectangles.

import { el, say } from "./dom.js";
import { palette, STEPS } from "./heat.js";
import { onTheme } from "./theme.js";

/**
 * @typedef {{
 *   node: string,
 *   state: string,
 *   href: string | null,
 *   share: number | null,
 *   text: string,
 *   standsOut: boolean,
 * }} TileLook `share` is the value on the scale from 0 to 1; `href` is null if the node cannot be opened
 * @typedef {{element: any, name: any, value: any, drawn: string, look: TileLook}} Tile
 */

/** Up to this many nodes, tiles have names and values; up to the second number, names. */
const LARGE_MAX = 80;
const MEDIUM_MAX = 480;
const SHORT_NAME = 6;

/** Marks of states, in addition to hatching and borders. @type {Record<string, string>} */
const MARKS = { late: "…", lost: "×", refused: "⊘" };

export class NodeTiles {
  /**
   * @param {(node: string) => Node[]} describe the content of the box next to the tile under the cursor
   */
  constructor(describe) {
    this.describe = describe;
    /** @type {Map<string, Tile>} */
    this.tiles = new Map();
    /** @type {string[]} */
    this.order = [];
    /** The tile in the tab order; arrow keys move it. @type {string | null} */
    this.current = null;
    /** @type {string | null} */
    this.pointed = null;
    this.colours = paints();
    this.size = "large";
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.grid = el("div", { class: "tiles", role: "list", "aria-label": "Nodes" });
    this.tip = el("div", { class: "tip node-tip", hidden: true });
    this.element = el("div", { class: "tile-stage" }, this.canvas, this.grid, this.tip);
    this.grid.addEventListener("pointerover", (/** @type {any} */ event) => this.#point(event.target));
    this.grid.addEventListener("pointerleave", () => this.#point(document.activeElement));
    this.grid.addEventListener("focusin", (/** @type {any} */ event) => this.#point(event.target));
    this.grid.addEventListener("focusout", () => this.#point(null));
    this.grid.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.#key(event));
    this.stopTheme = onTheme(() => {
      this.colours = paints();
      for (const tile of this.tiles.values()) {
        tile.drawn = "";
        this.#draw(tile);
      }
      this.#paint();
    });
    this.resizes = new ResizeObserver(() => this.#paint());
    this.resizes.observe(this.grid);
  }

  /**
   * @param {TileLook[]} looks in the order of the tiles
   * @param {number} count of all nodes: filtering does not change the size of tiles
   */
  show(looks, count) {
    const size = count <= LARGE_MAX ? "large" : count <= MEDIUM_MAX ? "medium" : "small";
    this.size = size;
    if (this.grid.dataset.size !== size) this.grid.dataset.size = size;
    const wanted = new Set(looks.map((look) => look.node));
    for (const [node, tile] of this.tiles) {
      if (wanted.has(node)) continue;
      tile.element.remove();
      this.tiles.delete(node);
    }
    this.order = looks.map((look) => look.node);
    if (this.current === null || !wanted.has(this.current)) this.#select(this.order[0] ?? null);
    looks.forEach((look, at) => {
      let tile = this.tiles.get(look.node);
      if (!tile) this.tiles.set(look.node, (tile = this.#make(look)));
      tile.look = look;
      say(tile.name, size === "medium" ? shortName(look.node) : look.node);
      if (size === "large") say(tile.value, look.text);
      this.#draw(tile);
      const place = this.grid.children[at];
      if (place !== tile.element) this.grid.insertBefore(tile.element, place ?? null);
    });
    this.#paint();
    this.#showTip();
  }

  /** Whether the pointer or the focus is in the grid: tiles should not move now. */
  isInUse() {
    return this.pointed !== null;
  }

  /** Draws the colours of small tiles. */
  #paint() {
    const { canvas, grid } = this;
    canvas.hidden = this.size !== "small" || this.order.length === 0;
    if (canvas.hidden) return;
    const style = getComputedStyle(grid);
    const widths = style.gridTemplateColumns.split(" ").map(parseFloat);
    const [height, gap] = [parseFloat(style.gridAutoRows), parseFloat(style.columnGap)];
    const ratio = devicePixelRatio;
    const rows = Math.ceil(this.order.length / widths.length);
    const [wide, high] = [grid.clientWidth, rows * (height + gap)];
    if (canvas.width !== Math.round(wide * ratio) || canvas.height !== Math.round(high * ratio)) {
      canvas.width = Math.round(wide * ratio);
      canvas.height = Math.round(high * ratio);
      canvas.style.width = `${wide}px`;
      canvas.style.height = `${high}px`;
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, wide, high);
    this.order.forEach((node, at) => {
      const tile = /** @type {Tile} */ (this.tiles.get(node));
      const step = stepOf(tile.look);
      if (step < 0 || tile.look.state !== "up") return;
      const column = at % widths.length;
      context.fillStyle = this.colours[step].back;
      context.fillRect(column * (widths[0] + gap), Math.floor(at / widths.length) * (height + gap), widths[0], height);
    });
  }

  /** @param {TileLook} look @returns {Tile} */
  #make(look) {
    const name = el("span", { class: "tile-name" });
    const value = el("span", { class: "tile-value" });
    const element = el("a", { class: "tile", tabindex: look.node === this.current ? "0" : "-1" }, name, value);
    element.dataset.node = look.node;
    return { element, name, value, drawn: "", look };
  }

  /** @param {Tile} tile */
  #draw(tile) {
    const { look, element } = tile;
    const step = stepOf(look);
    const isPainted = this.size === "small" && look.state === "up" && step >= 0;
    const drawn = `${isPainted ? "painted" : step} ${look.state} ${look.standsOut} ${look.href}`;
    if (drawn === tile.drawn) return;
    tile.drawn = drawn;
    const paint = isPainted ? undefined : this.colours[step];
    element.style.backgroundColor = paint?.back ?? "";
    element.style.color = paint?.front ?? "";
    element.className = `tile is-${look.state}${step < 0 ? " no-value" : ""}${isPainted ? " is-painted" : ""}${look.standsOut ? " stands-out" : ""}`;
    element.dataset.mark = MARKS[look.state] ?? "";
    if (look.href === null) {
      element.removeAttribute("href");
      element.setAttribute("role", "link");
      element.setAttribute("aria-disabled", "true");
    } else {
      element.setAttribute("href", look.href);
      element.removeAttribute("role");
      element.removeAttribute("aria-disabled");
    }
  }

  /** @param {string | null} node */
  #select(node) {
    const old = this.current === null ? undefined : this.tiles.get(this.current);
    old?.element.setAttribute("tabindex", "-1");
    this.current = node;
    if (node !== null) this.tiles.get(node)?.element.setAttribute("tabindex", "0");
  }

  /** Shows the box for a tile, or hides it. @param {any} target */
  #point(target) {
    this.pointed = target?.closest?.(".tile")?.dataset.node ?? null;
    this.#showTip();
  }

  #showTip() {
    const tile = this.pointed === null ? undefined : this.tiles.get(this.pointed);
    this.tip.hidden = !tile;
    if (!tile || this.pointed === null) return;
    this.tip.replaceChildren(...this.describe(this.pointed));
    tile.element.setAttribute("aria-label", [...this.tip.children].map((row) => row.textContent).join(", "));
    const stage = this.element.getBoundingClientRect();
    const box = tile.element.getBoundingClientRect();
    const tip = this.tip.getBoundingClientRect();
    const left = Math.min(Math.max(box.left - stage.left, 0), Math.max(stage.width - tip.width, 0));
    const fitsBelow = box.bottom + tip.height + 8 < innerHeight;
    const top = fitsBelow ? box.bottom - stage.top + 6 : box.top - stage.top - tip.height - 6;
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${top}px`;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.order.indexOf(this.current ?? "");
    const columns = getComputedStyle(this.grid).gridTemplateColumns.split(" ").length;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    const last = this.order.length - 1;
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    const next = event.key === "Home" ? 0 : event.key === "End" ? last : step === undefined ? NaN : at + step;
    if (event.key === "Escape") return this.#point(null);
    if (Number.isNaN(next)) return;
    // Arrow keys move in time elsewhere on the page.
    event.preventDefault();
    event.stopPropagation();
    if (next < 0 || next > last) return;
    this.#select(this.order[next]);
    this.tiles.get(this.order[next])?.element.focus();
  }

  dispose() {
    this.resizes.disconnect();
    this.stopTheme();
  }
}

/** The colour of a value; -1 without one. @param {TileLook} look */
function stepOf(look) {
  return look.share === null ? -1 : Math.round(Math.min(Math.max(look.share, 0), 1) * STEPS);
}

/** The colours of tiles: of the area, and of the text on it. */
function paints() {
  return palette().map((channels) => ({
    back: `rgb(${channels.join(" ")})`,
    front: luminance(channels) > 0.179 ? "#000" : "#fff",
  }));
}

/** The relative luminance of WCAG. Above 0.179, black text has more contrast than white. @param {number[]} channels */
function luminance(channels) {
  const [red, green, blue] = channels.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** A name that fits into a medium tile: its end, without the domain. @param {string} name */
function shortName(name) {
  const host = name.split(".")[0];
  return host.length > SHORT_NAME ? host.slice(-SHORT_NAME) : host;
}
