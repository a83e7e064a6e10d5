// The Node view: charts by topic. For data that this node lacks, a line of text replaces the chart.

import { list, status } from "./agent.js";
import { el } from "./dom.js";
import { explain, Panel } from "./panel.js";
import { nameTest } from "./series.js";
import { TOPICS } from "./topics.js";

/** @typedef {import("./panel.js").Definition} Definition */

/** @param {HTMLElement} main */
export function nodeView(main) {
  /** @type {Panel[]} */
  const panels = [];
  let gone = false;
  const index = el("nav", { class: "topics", "aria-label": "Topics" });
  main.append(index);
  build();

  async function build() {
    const [names, facts] = await Promise.all([
      list.get().then(namesOf, () => null),
      status.get().catch(() => null),
    ]);
    if (gone) return;
    for (const topic of TOPICS) {
      const there = topic.panels.filter((definition) => !names || exists(definition, names));
      const lacking = topic.panels.filter((definition) => !there.includes(definition));
      const grid = el("div", { class: "panels" });
      for (const definition of there) {
        const panel = new Panel(definition);
        panels.push(panel);
        grid.append(panel.element);
      }
      const notes = lacking.map((definition) =>
        el("li", {}, el("strong", { text: definition.title }), " ", why(definition, facts)),
      );
      const title = el("h2", { id: `topic-${topic.id}`, text: topic.title, tabindex: "-1" });
      main.append(
        el(
          "section",
          { "aria-labelledby": title.id },
          title,
          there.length > 0 && grid,
          notes.length > 0 && el("ul", { class: "lacking" }, notes),
        ),
      );
      const jump = () => {
        title.scrollIntoView({
          behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth",
        });
        title.focus({ preventScroll: true });
      };
      index.append(
        el("button", {
          type: "button",
          class: there.length > 0 ? "" : "faint",
          text: topic.title,
          on: { click: jump },
        }),
      );
    }
  }

  return {
    dispose() {
      gone = true;
      for (const panel of panels) panel.dispose();
    },
  };
}

/** @param {{name: string}[]} all */
function namesOf(all) {
  return new Set(all.map((series) => series.name.split("{")[0]));
}

/** @param {Definition} definition @param {Set<string>} names */
function exists(definition, names) {
  return definition.queries.some((query) => {
    const fits = nameTest(query.name);
    return query.name.includes("*") ? [...names].some(fits) : names.has(query.name);
  });
}

/** @param {Definition} definition @param {any} facts */
function why(definition, facts) {
  const collector = facts?.collectors.find((/** @type {any} */ each) => each.name === definition.collector);
  return (
    (collector && explain(collector, definition, facts.level)) ??
    definition.missing ??
    "This node has no such series."
  );
}
