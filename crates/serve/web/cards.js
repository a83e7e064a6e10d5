// The cards of the Overview: what each shows, and how its rows are computed from series.

import { number } from "./format.js";
import { summed } from "./frame.js";
import { lineColour } from "./theme.js";
import { CPU, cpuLines, combined, MEMORY, paired } from "./topics.js";

/**
 * @typedef {import("./frame.js").Frame} Frame
 * @typedef {import("./frame.js").Column} Column
 * @typedef {{label: string, share?: number | null, parts?: [number, string, string][], text: string, spark?: Column, max?: number, calm?: boolean, hero?: boolean}} Row
 * @typedef {{title: string, href: string, queries: import("./frame.js").Query[], rows: (frame: Frame) => Row[], collector: string, missing?: string, level?: number, note?: (frame: Frame) => string}} Card
 */
const percent = (/** @type {number} */ value) => value * 100;
export const last = (/** @type {Column | undefined} */ column) =>
  column?.findLast((value) => value !== null) ?? null;
const by = (/** @type {Frame} */ frame, /** @type {string} */ key, /** @type {string} */ label) =>
  new Map(frame.lines(key).map((group) => [group.labels[label], group.data]));

/** @type {Card[]} */
export const CARDS = [
  {
    title: "Processors",
    href: "#/node",
    collector: "cpu",
    level: 2,
    queries: CPU.queries,
    rows: (frame) => {
      const lines = cpuLines(frame);
      const total = summed(lines.map((line) => line.data));
      const parts = /** @type {[number, string, string][]} */ (
        lines.map((line) => [last(line.data) ?? 0, line.label, line.colour])
      );
      return [
        {
          label: "busy",
          parts,
          text: number(Math.min(last(total) ?? 0, 100), "%"),
          spark: total,
          max: 100,
          hero: true,
        },
      ];
    },
    note: (frame) => {
      const lines = cpuLines(frame).map(
        (line) => /** @type {[string, number]} */ ([line.label, last(line.data) ?? 0]),
      );
      const most = lines
        .filter(([, value]) => value >= 0.5)
        .sort((a, b) => b[1] - a[1])
        .slice(0, 3);
      return most.map(([mode, value]) => `${mode} ${number(value, "%")}`).join(" · ") || "idle";
    },
  },
  {
    title: "Memory",
    href: "#/node",
    collector: "memory",
    level: 2,
    queries: [
      ...MEMORY.queries,
      { name: "node_memory_MemAvailable_bytes", by: [], key: "MemAvailable" },
      { name: "node_memory_SwapTotal_bytes", by: [], key: "SwapTotal" },
      { name: "node_memory_SwapFree_bytes", by: [], key: "SwapFree" },
    ],
    rows: (frame) => {
      const lines = /** @type {any} */ (MEMORY.derive)(frame);
      const total = last(combined(frame, ["MemTotal"], (all) => all)) ?? 0;
      const used = combined(frame, ["MemTotal", "MemAvailable"], (all, free) => ((all - free) / all) * 100);
      const parts = lines
        .slice(0, 3)
        .map((/** @type {any} */ line, /** @type {number} */ at) => [
          ((last(line.data) ?? 0) / total) * 100,
          line.label,
          lineColour([0, 3, 9][at]),
        ]);
      /** @type {Row[]} */
      const rows = [
        {
          label: `of ${number(total, "bytes")}`,
          parts,
          text: number(last(lines[0].data), "bytes"),
          spark: used,
          max: 100,
          hero: true,
        },
      ];
      const swap = last(combined(frame, ["SwapTotal"], (all) => all)) ?? 0;
      if (swap > 0) {
        const inUse = last(combined(frame, ["SwapTotal", "SwapFree"], (all, free) => all - free)) ?? 0;
        rows.push({
          label: "swap",
          share: (inUse / swap) * 100,
          text: `${number(inUse, "bytes")} of ${number(swap, "bytes")}`,
        });
      }
      return rows;
    },
    note: (frame) => {
      const cache = last(combined(frame, ["Cached", "SReclaimable"], (cached, slab) => cached + slab));
      return `cache ${number(cache, "bytes")} · available ${number(last(combined(frame, ["MemAvailable"], (free) => free)), "bytes")}`;
    },
  },
  {
    title: "Load",
    href: "#/node",
    collector: "load",
    level: 2,
    queries: [
      { name: "node_load1", by: [], key: "1" },
      { name: "node_load5", by: [], key: "5" },
      { name: "node_load15", by: [], key: "15" },
      { name: "node_cpu_seconds_total", where: (labels) => labels.mode === "idle", by: ["cpu"], key: "cpu" },
      { name: "node_procs_running", by: [], key: "running" },
      { name: "node_procs_blocked", by: [], key: "blocked" },
    ],
    rows: (frame) => {
      const count = frame.lines("cpu").length || 1;
      const row = (/** @type {string} */ key) => {
        const data = combined(frame, [key], (value) => value);
        return {
          label: `${key} min`,
          share: ((last(data) ?? 0) / count) * 100,
          text: number(last(data)),
          spark: data,
          max: count,
        };
      };
      return [row("1"), row("5"), row("15")];
    },
    note: (frame) =>
      `${frame.lines("cpu").length} processors · ${number(last(frame.lines("running")[0]?.data))} running, ${number(last(frame.lines("blocked")[0]?.data))} blocked`,
  },
  {
    title: "Pressure",
    href: "#/node",
    collector: "pressure",
    level: 2,
    missing: "This kernel does not measure pressure; boot with psi=1.",
    queries: ["cpu", "memory", "io"].map((key) => ({
      name: `node_pressure_${key}_waiting_seconds_total`,
      rate: true,
      by: [],
      key,
      map: percent,
    })),
    rows: (frame) =>
      [
        ["cpu", "processor"],
        ["memory", "memory"],
        ["io", "disks"],
      ].map(([key, label]) => {
        const data = combined(frame, [key], (value) => value);
        return { label, share: last(data), text: number(last(data), "%"), spark: data, max: 10 };
      }),
    note: () => "share of time in which tasks had to wait",
  },
  {
    title: "Disks",
    href: "#/node",
    collector: "disk",
    level: 2,
    missing: "This node has no disks.",
    queries: [
      ["io_time_seconds_total", "busy", percent],
      ["read_bytes_total", "read"],
      ["written_bytes_total", "written"],
    ].map(([name, key, map]) => ({
      name: `node_disk_${name}`,
      where: (/** @type {any} */ labels) => !/^(loop|ram|zram)/.test(labels.device),
      rate: true,
      by: ["device"],
      key: /** @type {string} */ (key),
      map: /** @type {any} */ (map),
    })),
    rows: (frame) => {
      const [read, written] = [by(frame, "read", "device"), by(frame, "written", "device")];
      return frame.lines("busy").map((group) => {
        const device = group.labels.device;
        return {
          label: device,
          share: last(group.data),
          text: `${number(last(read.get(device)), "bytes/s")} in · ${number(last(written.get(device)), "bytes/s")} out`,
          spark: summed([read.get(device) ?? [], written.get(device) ?? []]),
        };
      });
    },
    note: () => "bar: share of time the disk was busy",
  },
  {
    title: "File systems",
    href: "#/node",
    collector: "filesystem",
    level: 2,
    queries: [
      { name: "node_filesystem_size_bytes", by: ["mountpoint"], fold: "max", key: "size" },
      { name: "node_filesystem_avail_bytes", by: ["mountpoint"], fold: "max", key: "free" },
    ],
    rows: (frame) => {
      const free = by(frame, "free", "mountpoint");
      return paired(frame, "size", "free", (size, rest) => (size > 0 ? (1 - rest / size) * 100 : null))
        .map((line) => ({
          label: line.label,
          share: last(line.data),
          text: `${number(last(free.get(line.label)), "bytes")} free`,
        }))
        .sort((a, b) => (b.share ?? 0) - (a.share ?? 0));
    },
  },
  {
    title: "Network",
    href: "#/node",
    collector: "network",
    level: 2,
    queries: ["receive", "transmit"].map((key) => ({
      name: `node_network_${key}_bytes_total`,
      where: (/** @type {any} */ labels) => labels.device !== "lo",
      rate: true,
      by: ["device"],
      key,
    })),
    rows: (frame) => {
      const out = by(frame, "transmit", "device");
      const rows = frame.lines("receive").map((group) => ({
        label: group.labels.device,
        text: `${number(last(group.data), "bytes/s")} in · ${number(last(out.get(group.labels.device)), "bytes/s")} out`,
        spark: summed([group.data, out.get(group.labels.device) ?? []]),
        size: last(group.data) ?? 0,
      }));
      return rows.sort((a, b) => b.size - a.size);
    },
    missing: "This node has no network interface except loopback.",
  },
  {
    title: "GPUs",
    href: "#/node",
    collector: "nvidia",
    level: 3,
    missing: "No GPU that the agent can read.",
    queries: [
      { name: "node_nvidia_gpu_utilization_ratio", by: ["gpu"], key: "busy", map: percent },
      { name: "node_nvidia_memory_used_bytes", by: ["gpu"], key: "used" },
      { name: "node_nvidia_memory_total_bytes", by: ["gpu"], key: "total" },
      { name: "node_nvidia_power_watts", by: ["gpu"], key: "power" },
      { name: "node_nvidia_temperature_celsius", by: ["gpu"], key: "warm" },
      { name: "node_gpu_busy_ratio", by: ["gpu"], key: "busy", map: percent },
      {
        name: "node_gpu_memory_used_bytes",
        where: (labels) => labels.memory === "vram",
        by: ["gpu"],
        key: "used",
      },
      {
        name: "node_gpu_memory_total_bytes",
        where: (labels) => labels.memory === "vram",
        by: ["gpu"],
        key: "total",
      },
      { name: "node_gpu_power_watts", by: ["gpu"], key: "power" },
      { name: "node_gpu_temperature_celsius", by: ["gpu"], fold: "max", key: "warm" },
    ],
    rows: (frame) => {
      const [used, total, power, warm] = ["used", "total", "power", "warm"].map((key) =>
        by(frame, key, "gpu"),
      );
      return frame.lines("busy").flatMap((group) => {
        const gpu = group.labels.gpu;
        const name = /^\d+$/.test(gpu) ? `GPU ${gpu}` : gpu;
        const texts = [
          number(last(group.data), "%"),
          power.has(gpu) && number(last(power.get(gpu)), "watts"),
          warm.has(gpu) && number(last(warm.get(gpu)), "celsius"),
        ];
        /** @type {Row[]} */
        const rows = [
          {
            label: name,
            share: last(group.data),
            calm: true,
            text: texts.filter(Boolean).join(" · "),
            spark: group.data,
            max: 100,
          },
        ];
        const [inUse, all] = [last(used.get(gpu)), last(total.get(gpu))];
        if (inUse !== null && all)
          rows.push({
            label: `${name} memory`,
            share: (inUse / all) * 100,
            calm: true,
            text: `${number(inUse, "bytes")} of ${number(all, "bytes")}`,
            spark: used.get(gpu),
            max: all,
          });
        return rows;
      });
    },
  },
];
