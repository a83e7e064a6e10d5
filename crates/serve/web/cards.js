// The cards of the Overview: what each shows, and how its rows are computed from series.

import { combined, last, summed } from "./columns.js";
import { number } from "./format.js";
import { lineColour } from "./theme.js";
import { CPU, cpuLines, FILE_SYSTEMS, fileSystemUse, MEMORY, memoryLines } from "./topics.js";

/**
 * @typedef {import("./frame.js").Frame} Frame
 * @typedef {import("./columns.js").Lines} Lines
 * @typedef {import("./frame.js").Column} Column
 * @typedef {{label: string, share?: number | null, parts?: [number, string, string][], text: string, spark?: Column, max?: number, calm?: boolean, limits?: [number, number], hero?: boolean, tall?: boolean}} Row
 * @typedef {{title: string, href: string, queries: import("./frame.js").Query[], rows: (frame: Frame, now: Lines) => Row[], collector: string, missing?: string, level?: number, note?: (now: Lines) => string}} Card
 */
const percent = (/** @type {number} */ value) => value * 100;
const by = (/** @type {Lines} */ frame, /** @type {string} */ key, /** @type {string} */ label) =>
  new Map(frame.lines(key).map((group) => [group.labels[label], group.data]));

/** Interfaces that are down and carry nothing. @param {Lines} now @returns {string[]} */
function idle(now) {
  const traffic = [by(now, "receive", "device"), by(now, "transmit", "device")];
  return now
    .lines("up")
    .filter((group) => last(group.data) === 0)
    .map((group) => group.labels.device)
    .filter((device) => traffic.every((known) => !last(known.get(device))));
}

/** @type {Card[]} */
export const CARDS = [
  {
    title: "Processors",
    href: "#/node",
    collector: "cpu",
    level: 2,
    queries: CPU.queries,
    rows: (frame, now) => {
      const parts = /** @type {[number, string, string][]} */ (
        cpuLines(now).map((line) => [last(line.data) ?? 0, line.label, line.colour])
      );
      const total = parts.reduce((sum, [share]) => sum + share, 0);
      return [
        {
          label: "busy",
          parts,
          text: number(Math.min(total, 100), "%"),
          spark: summed(cpuLines(frame).map((line) => line.data)),
          max: 100,
          hero: true,
        },
      ];
    },
    note: (now) => {
      const lines = cpuLines(now).map(
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
      { name: "node_memory_SwapTotal_bytes", by: [], key: "SwapTotal" },
      { name: "node_memory_SwapFree_bytes", by: [], key: "SwapFree" },
    ],
    rows: (frame, now) => {
      const value = new Map(memoryLines(now).map((line) => [line.label, last(line.data) ?? 0]));
      const [used, cache, total] = ["used", "cache", "total"].map((key) => value.get(key) ?? 0);
      const share = (used / total) * 100;
      /** @type {Row[]} */
      const rows = [
        {
          label: `of ${number(total, "bytes")} used`,
          parts: [
            [share, "used", lineColour(0)],
            [Math.min((cache / total) * 100, 100 - share), "cache", lineColour(3)],
          ],
          share,
          text: number(used, "bytes"),
          spark: combined(frame, ["MemTotal", "MemAvailable"], (all, free) => ((all - free) / all) * 100),
          max: 100,
          hero: true,
        },
      ];
      const swap = last(combined(now, ["SwapTotal"], (all) => all)) ?? 0;
      if (swap > 0) {
        const inUse = last(combined(now, ["SwapTotal", "SwapFree"], (all, free) => all - free)) ?? 0;
        rows.push({
          label: "swap",
          share: (inUse / swap) * 100,
          text: `${number(inUse, "bytes")} of ${number(swap, "bytes")}`,
        });
      }
      return rows;
    },
    note: (now) => {
      const value = new Map(memoryLines(now).map((line) => [line.label, last(line.data)]));
      return `cache ${number(value.get("cache"), "bytes")} · shared ${number(value.get("shared"), "bytes")} · free ${number(value.get("free"), "bytes")}`;
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
          limits: [100, 200],
          text: number(last(data)),
          spark: data,
          max: count,
        };
      };
      return [row("1"), row("5"), row("15")];
    },
    note: (now) =>
      `tasks that run or wait for a processor or a disk · ${now.lines("cpu").length} processors · ${number(last(now.lines("running")[0]?.data))} running, ${number(last(now.lines("blocked")[0]?.data))} blocked`,
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
    rows: (frame, now) =>
      [
        ["cpu", "processor"],
        ["memory", "memory"],
        ["io", "disks"],
      ].map(([key, label]) => {
        const share = last(combined(now, [key], (value) => value));
        const data = combined(frame, [key], (value) => value);
        return { label, share, limits: [10, 40], text: number(share, "%"), spark: data, max: 10 };
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
    rows: (frame, now) => {
      const [read, written] = [by(frame, "read", "device"), by(frame, "written", "device")];
      const [reads, writes] = [by(now, "read", "device"), by(now, "written", "device")];
      return now.lines("busy").map((group) => {
        const device = group.labels.device;
        return {
          label: device,
          share: last(group.data),
          text: `read ${number(last(reads.get(device)), "bytes/s")} · write ${number(last(writes.get(device)), "bytes/s")}`,
          spark: summed([read.get(device) ?? [], written.get(device) ?? []]),
          tall: true,
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
    queries: FILE_SYSTEMS,
    rows: (_, now) => {
      const avail = by(now, "avail", "mountpoint");
      return fileSystemUse(now)
        .filter((line) => last(line.data) !== null)
        .map((line) => ({
          label: line.label,
          share: last(line.data),
          text: `${number(last(line.data), "%")} · ${number(last(avail.get(line.label)), "bytes")} available`,
        }))
        .sort((a, b) => (b.share ?? 0) - (a.share ?? 0));
    },
  },
  {
    title: "Network",
    href: "#/node",
    collector: "network",
    level: 2,
    queries: [
      ...["receive", "transmit"].map((key) => ({
        name: `node_network_${key}_bytes_total`,
        where: (/** @type {any} */ labels) => labels.device !== "lo",
        rate: true,
        by: ["device"],
        key,
      })),
      { name: "node_network_up", where: (labels) => labels.device !== "lo", by: ["device"], key: "up" },
    ],
    rows: (frame, now) => {
      const [sent, sending] = [by(frame, "transmit", "device"), by(now, "transmit", "device")];
      const receiving = by(now, "receive", "device");
      const down = new Set(idle(now));
      const rows = frame
        .lines("receive")
        .filter((group) => !down.has(group.labels.device))
        .map((group) => {
          const { device } = group.labels;
          const [received, transmitted] = [last(receiving.get(device)), last(sending.get(device))];
          return {
            label: device,
            text: `${number(received, "bytes/s")} in · ${number(transmitted, "bytes/s")} out`,
            spark: summed([group.data, sent.get(device) ?? []]),
            tall: true,
            size: received ?? 0,
          };
        });
      return rows.sort((a, b) => b.size - a.size);
    },
    note: (now) => {
      const down = idle(now);
      return down.length > 0 ? `down: ${down.slice(0, 6).join(", ")}${down.length > 6 ? ", …" : ""}` : "";
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
    rows: (frame, now) => {
      const [busy, memory] = [by(frame, "busy", "gpu"), by(frame, "used", "gpu")];
      const [used, total, power, warm] = ["used", "total", "power", "warm"].map((key) =>
        by(now, key, "gpu"),
      );
      return now.lines("busy").flatMap((group) => {
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
            spark: busy.get(gpu),
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
            spark: memory.get(gpu),
            max: all,
          });
        return rows;
      });
    },
  },
];
