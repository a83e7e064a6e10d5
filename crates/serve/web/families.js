// Metrics by name, the number of series of each, and their senders.

import { number, whole } from "./format.js";
import { parse } from "./series.js";

/** @typedef {import("./table.js").Table} Table */
/**
 * @typedef {{
 *   name: string,
 *   doc: string,
 *   type: string,
 *   unit: string,
 *   count: number,
 *   labels: Map<string, Set<string>>,
 * }} Family
 */

const VALUES_MAX = 500;

/** @param {{name: string, doc: string, type: string, unit: string}[]} all */
export function familiesOf(all) {
  /** @type {Map<string, Family>} */
  const families = new Map();
  for (const series of all) {
    const { name, labels } = parse(series.name);
    let family = families.get(name);
    if (!family) families.set(name, (family = { ...series, name, count: 0, labels: new Map() }));
    family.count += 1;
    for (const [key, value] of Object.entries(labels)) {
      const values = family.labels.get(key) ?? new Set();
      if (values.size < VALUES_MAX) values.add(value);
      family.labels.set(key, values);
    }
  }
  return families;
}

/**
 * @param {any} facts
 * @param {Map<string, Family>} families
 * @param {Table} senders
 * @param {Table} largest
 */
export function cardinality(facts, families, senders, largest) {
  const dropped = (/** @type {Record<string, number>} */ reasons) =>
    Object.values(reasons).reduce((sum, count) => sum + count, 0);
  const known = facts.senders ?? [];
  const sent = known.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.series, 0);
  const rows = known.map((/** @type {any} */ each) => ({
    key: `${each.input} ${each.sender}`,
    cells: [each.sender, each.input, whole(each.series), whole(each.received), whole(dropped(each.dropped))],
    share: (each.series / Math.max(facts.store.series, 1)) * 100,
  }));
  const own = facts.inputs.find((/** @type {any} */ each) => each.input === "collect");
  const collected = Math.max(facts.store.series - sent, 0);
  rows.push({
    key: "collectors",
    cells: [
      "this node's collectors",
      "collect",
      whole(collected),
      whole(own?.received ?? 0),
      whole(dropped(own?.dropped ?? {})),
    ],
    share: (collected / Math.max(facts.store.series, 1)) * 100,
  });
  senders.show(rows);
  const most = [...families.values()].sort((a, b) => b.count - a.count).slice(0, 10);
  largest.show(
    most.map((family) => ({
      key: family.name,
      cells: [
        family.name,
        family.type,
        whole(family.count),
        [...family.labels].map(([key, values]) => `${key} (${number(values.size)})`).join(", "),
      ],
      share: (family.count / most[0].count) * 100,
    })),
  );
}
