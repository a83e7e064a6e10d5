// Selects the shown time: its length, steps back and forward, and a slider from the store's oldest sample to now.

import { status } from "./agent.js";
import { byId, el, say } from "./dom.js";
import { clock, day, duration, moment, zone } from "./format.js";
import { isConnected, onState, watch } from "./live.js";
import { bounds, isLive, move, onMove, pan, showAll, SPANS, stretch, zoom } from "./window.js";

const NAMES = ["1 m", "5 m", "15 m", "1 h", "6 h", "24 h", "2 d"];

const button = (/** @type {string} */ text, /** @type {string} */ name, /** @type {() => void} */ click) =>
  el("button", { type: "button", text, title: name, "aria-label": name, on: { click } });

export function startTimebar() {
  const spans = SPANS.map((span, at) =>
    button(NAMES[at], `Show ${duration(span)}`, () => move(span, stretch.end)),
  );
  const all = button("all", "Show all stored data (a)", showAll);
  const live = el("button", {
    type: "button",
    class: "live",
    text: "Live",
    title: "Follow live data (l)",
    on: { click: () => move(stretch.span, null) },
  });
  const range = el("span", { class: "range" });
  const track = slider();
  byId("timebar").append(
    el("div", { class: "group" }, spans, all),
    el(
      "div",
      { class: "group" },
      button("‹", "Back (←)", () => pan(-0.5)),
      button("›", "Forward (→)", () => pan(0.5)),
      button("−", "Zoom out (-)", () => zoom(2)),
      button("+", "Zoom in (+)", () => zoom(0.5)),
      live,
    ),
    range,
    track.element,
  );
  const show = () => {
    const [from, to] = bounds();
    spans.forEach((each, at) =>
      each.setAttribute("aria-pressed", String(Math.abs(stretch.span - SPANS[at]) < 1)),
    );
    // Following the present needs both: the wish of the user, and an agent that sends.
    live.setAttribute("aria-pressed", String(isLive() && isConnected()));
    live.title = isLive() && !isConnected() ? "Follows again when the agent is back" : "Follow live data (l)";
    say(
      range,
      isLive()
        ? `last ${duration(stretch.span)}, until ${day(to)} ${clock(to)} ${zone(to)}`
        : `${day(from)} ${clock(from)} – ${moment(to, from)} ${zone(to)}`,
    );
    track.show(from, to);
  };
  onMove(show);
  onState(show);
  watch({ patterns: [], meet: () => {}, tick: show, resync: refresh });
  refresh();
  setInterval(() => !document.hidden && refresh(), 60e3);
  show();

  async function refresh() {
    try {
      const facts = await status.get();
      stretch.oldest = facts.store.oldest;
      stretch.rate = Math.max(facts.rate * 1000, 1);
      if (Math.abs(stretch.now - facts.store.newest) > 60e3) stretch.now = facts.store.newest ?? stretch.now;
      show();
    } catch {
      // The stream's state already shows that the agent is unreachable.
    }
  }
}

/** A slider over the whole store; the shown window can be dragged. */
function slider() {
  const thumb = el("div", { class: "thumb" });
  const element = el(
    "div",
    {
      class: "track",
      role: "slider",
      tabindex: "0",
      "aria-label": "Time, from the oldest sample to now",
      "aria-valuemin": "0",
      "aria-valuemax": "100",
    },
    thumb,
  );
  const whole = () => Math.max(stretch.now - (stretch.oldest ?? stretch.now), stretch.span, 1);
  const go = (/** @type {PointerEvent} */ event) => {
    const box = element.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    const start = stretch.now - whole();
    move(stretch.span, start + share * whole() + stretch.span / 2);
  };
  element.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    element.setPointerCapture(event.pointerId);
    go(event);
  });
  element.addEventListener(
    "pointermove",
    (/** @type {PointerEvent} */ event) => element.hasPointerCapture(event.pointerId) && go(event),
  );
  return {
    element,
    /** @param {number} from @param {number} to */
    show(from, to) {
      const start = stretch.now - whole();
      const left = Math.max(((from - start) / whole()) * 100, 0);
      const right = Math.min(((to - start) / whole()) * 100, 100);
      thumb.style.left = `${left.toFixed(2)}%`;
      thumb.style.width = `${Math.max(right - left, 0.6).toFixed(2)}%`;
      element.setAttribute("aria-valuenow", right.toFixed(0));
      element.setAttribute("aria-valuetext", `${moment(from, stretch.now)} to ${moment(to, stretch.now)}`);
      element.title =
        stretch.oldest === null ? "" : `The store begins at ${moment(stretch.oldest, stretch.now)}`;
    },
  };
}
