// The Overview: utilisation as bars, and recent changes.

import { status } from "./agent.js";
import { CARDS } from "./cards.js";
import { changesCard } from "./changes.js";
import { last } from "./columns.js";
import { el, redraw, say, sparkline } from "./dom.js";
import { Feed } from "./feed.js";
import { duration, number, whole } from "./format.js";
import { explain } from "./panel.js";
import { bounds } from "./window.js";

/** @typedef {import("./cards.js").Card} Card */
/** @typedef {import("./cards.js").Row} Row */

/** @param {HTMLElement} main */
export function overviewView(main) {
  const facts = el("p", { class: "facts" });
  const grid = el("div", { class: "cards" });
  main.append(facts, grid);
  const feeds = CARDS.map((card) => cardOf(card, grid));
  const changes = changesCard();
  main.append(changes.element);
  describe(facts);
  return {
    dispose() {
      for (const feed of feeds) feed.dispose();
      changes.dispose();
    },
  };
}

/** @param {Element} facts */
async function describe(facts) {
  try {
    const known = await status.get();
    const up = duration(Date.now() - known.started);
    say(
      facts,
      `Agent ${known.version}, up ${up}, level ${known.level}, a sample every ${number(known.rate, "seconds")} · ${whole(known.store.series)} series · history ${known.store.oldest === null ? "none yet" : duration(known.store.newest - known.store.oldest)}`,
    );
  } catch (error) {
    say(facts, `The agent does not respond: ${/** @type {Error} */ (error).message}.`);
  }
}

/** @param {Card} card @param {Element} grid */
function cardOf(card, grid) {
  const list = el("div", { class: "rows" });
  const note = el("p", { class: "note" });
  const element = el(
    "section",
    { class: "card" },
    el("h2", {}, el("a", { href: card.href, text: card.title })),
    list,
    note,
  );
  grid.append(element);
  /** @type {Map<string, ReturnType<typeof rowOf>>} */
  const rows = new Map();
  const feed = new Feed(card.queries, element, { width: () => 150, draw });
  return feed;

  function draw() {
    const known = feed.frame.lines().some((group) => last(group.data) !== null);
    const now = feed.frame.recent();
    const wanted = known ? card.rows(feed.frame, now).slice(0, 12) : [];
    element.classList.toggle("is-empty", wanted.length === 0);
    if (wanted.length === 0) {
      rows.clear();
      list.replaceChildren();
      return empty();
    }
    say(note, card.note?.(now) ?? "");
    for (const label of [...rows.keys()]) {
      if (wanted.some((row) => row.label === label)) continue;
      rows.get(label)?.element.remove();
      rows.delete(label);
    }
    for (const row of wanted) {
      let shown = rows.get(row.label);
      if (!shown) {
        shown = rowOf(row);
        rows.set(row.label, shown);
        list.append(shown.element);
      }
      shown.show(row);
    }
  }

  async function empty() {
    if (feed.failure) return say(note, `Cannot load: ${feed.failure}.`);
    const facts = await status.get().catch(() => null);
    const collector = facts?.collectors.find((/** @type {any} */ each) => each.name === card.collector);
    const said =
      collector &&
      explain(
        collector,
        { title: card.title, unit: "", queries: [], missing: card.missing, level: card.level },
        facts.level,
      );
    say(
      note,
      said ??
        (feed.frame.groups.size > 0
          ? "Waiting for a second sample …"
          : `No samples in the last ${duration(bounds()[1] - bounds()[0])}.`),
    );
  }
}

/** @param {Row} first */
function rowOf(first) {
  const text = el("span", { class: "row-text" });
  const bar = el("div", { class: "bar", role: "img" });
  const spark = first.spark
    ? sparkline([], { label: `${first.label}, over time`, ...(first.hero ? { width: 280, height: 52 } : {}) })
    : null;
  const hasBar = first.share !== undefined || first.parts;
  const element = el(
    "div",
    { class: `row${hasBar ? "" : " no-bar"}${first.hero ? " hero" : ""}${first.tall ? " tall" : ""}` },
    el("span", { class: "row-label", text: first.label, title: first.label }),
    text,
    hasBar && bar,
    spark,
  );
  return {
    element,
    /** @param {Row} row */
    show(row) {
      say(text, row.text);
      if (spark && row.spark) redraw(spark, row.spark, { max: row.max });
      if (!hasBar) return;
      const parts = row.parts ?? [[row.share ?? 0, row.label, ""]];
      while (bar.children.length < parts.length) bar.append(el("i"));
      while (bar.children.length > parts.length) bar.lastChild.remove();
      parts.forEach(([share, label, paint], at) => {
        const part = bar.children[at];
        part.style.width = `${Math.min(Math.max(share, 0), 100).toFixed(1)}%`;
        if (paint) part.style.backgroundColor = paint;
        part.title = `${label} ${number(share, "%")}`;
      });
      const share = row.share ?? parts.reduce((total, [part]) => total + part, 0);
      const [warm, hot] = row.limits ?? [80, 95];
      const heat = row.calm || share < warm ? "" : share < hot ? "warm" : "hot";
      bar.dataset.heat = row.parts ? "" : heat;
      element.dataset.heat = heat;
      element.classList.toggle("limited", !row.calm && warm < 100);
      element.style.setProperty("--warm-at", `${warm}%`);
      element.style.setProperty("--hot-at", `${hot}%`);
      bar.title = row.calm ? "" : `yellow from ${warm} %, red from ${hot} %`;
      bar.setAttribute("aria-label", `${row.label}: ${number(share, "%")}`);
    },
  };
}
