// The charts of the Node view, by topic.

import { combined, joined, last } from "./columns.js";
import { lineColour } from "./theme.js";

/**
 * @typedef {import("./panel.js").Definition} Definition
 * @typedef {import("./columns.js").Lines} Lines
 * @typedef {import("./frame.js").Column} Column
 * @typedef {{id: string, title: string, panels: Definition[]}} Topic
 */

const percent = (/** @type {number} */ value) => value * 100;

/** Processor modes, from the bottom of the stack to the top. */
const MODES = ["user", "nice", "system", "irq", "softirq", "iowait", "steal"];
const MODE_COLOURS = { user: 0, nice: 9, system: 1, irq: 5, softirq: 4, iowait: 2, steal: 6 };

/** @param {Lines} frame */
export function cpuLines(frame) {
  const known = new Map(frame.lines().map((group) => [group.labels.mode, group.data]));
  return MODES.filter((mode) => known.has(mode)).map((mode) => ({
    label: mode,
    data: /** @type {Column} */ (known.get(mode)),
    colour: lineColour(/** @type {any} */ (MODE_COLOURS)[mode]),
  }));
}

/** @type {Definition} */
export const CPU = {
  title: "Processor time",
  unit: "%",
  stack: true,
  max: 100,
  collector: "cpu",
  level: 2,
  hint: "Share of the time of all processors, by mode",
  queries: [
    {
      name: "node_cpu_seconds_total",
      where: (labels) => labels.mode !== "idle",
      rate: true,
      by: ["mode"],
      fold: "avg",
      map: percent,
    },
  ],
  derive: cpuLines,
};

const memory = (/** @type {string} */ key) => ({ name: `node_memory_${key}_bytes`, by: [], key });

/** Memory in use is the total minus what is available, as in free(1); the cache does not include shared memory. */
const MEMORY_PARTS = /** @type {[string, string[], (...values: number[]) => number][]} */ ([
  ["used", ["MemTotal", "MemAvailable"], (total, available) => Math.max(total - available, 0)],
  [
    "cache",
    ["Cached", "SReclaimable", "Buffers", "Shmem"],
    (cached, slab, buffers, shared) => Math.max(cached + slab + buffers - shared, 0),
  ],
  ["shared", ["Shmem"], (shared) => shared],
  ["free", ["MemFree"], (free) => free],
  ["total", ["MemTotal"], (total) => total],
]);

/** @param {Lines} frame */
export function memoryLines(frame) {
  return MEMORY_PARTS.map(([label, keys, make]) => ({ label, data: combined(frame, keys, make) }));
}

/** @type {Definition} */
export const MEMORY = {
  title: "Memory",
  unit: "bytes",
  collector: "memory",
  level: 2,
  hint: "Used is the total minus the available memory. It includes shared memory (tmpfs, System V); the cache does not.",
  queries: [
    "MemTotal",
    "MemAvailable",
    "MemFree",
    "Buffers",
    "Cached",
    "SReclaimable",
    "Shmem",
  ].map(memory),
  derive: memoryLines,
};

/** Sizes of file systems; several series of one mount point are one file system. */
export const FILE_SYSTEMS = [
  { name: "node_filesystem_size_bytes", by: ["mountpoint"], fold: /** @type {"max"} */ ("max"), key: "size" },
  { name: "node_filesystem_free_bytes", by: ["mountpoint"], fold: /** @type {"max"} */ ("max"), key: "free" },
  { name: "node_filesystem_avail_bytes", by: ["mountpoint"], fold: /** @type {"max"} */ ("max"), key: "avail" },
];

/** The use of file systems in percent, as df(1) computes it: blocks reserved for root count neither as used nor as available. @param {Lines} frame */
export function fileSystemUse(frame) {
  return joined(frame, ["size", "free", "avail"], (size, free, avail) => {
    const used = size - free;
    return used + avail > 0 ? (used / (used + avail)) * 100 : null;
  });
}

const REAL_DEVICE = (/** @type {Record<string, string>} */ labels) =>
  !/^(loop|ram|zram|dm-)/.test(labels.device ?? "");
const REAL_LINK = (/** @type {Record<string, string>} */ labels) => labels.device !== "lo";
const NO_GPU = "No GPU that the agent can read.";

/** @param {string} name @param {string} label @param {Partial<import("./frame.js").Query>} [more] */
const disk = (name, label, more = {}) => ({
  name: `node_disk_${name}`,
  where: REAL_DEVICE,
  rate: true,
  by: ["device"],
  label: `$device ${label}`,
  ...more,
});
/** @param {string} name @param {string} label */
const link = (name, label) => ({
  name: `node_network_${name}_total`,
  where: REAL_LINK,
  rate: true,
  by: ["device"],
  label: `$device ${label}`,
});
const LINK_UP = { name: "node_network_up", where: REAL_LINK, by: ["device"], key: "up" };

/** The lines of interfaces, without those that are down and carry nothing. @param {Lines} frame */
function activeLinks(frame) {
  const down = new Set(
    frame.lines("up").flatMap((group) => (last(group.data) === 0 ? [group.labels.device] : [])),
  );
  return frame
    .lines("")
    .filter((group) => !down.has(group.labels.device) || group.data.some((value) => value))
    .map(({ label, data }) => ({ label, data }))
    .sort((a, b) => a.label.localeCompare(b.label, undefined, { numeric: true }));
}

/** @param {string} name @param {string} label @param {Partial<import("./frame.js").Query>} [more] */
const rate = (name, label, more = {}) => ({ name, rate: true, by: [], label, ...more });
/** @param {string} name @param {string} label @param {Partial<import("./frame.js").Query>} [more] */
const gauge = (name, label, more = {}) => ({ name, by: [], label, ...more });

/** @type {Topic[]} */
export const TOPICS = [
  {
    id: "cpu",
    title: "Processors",
    panels: [
      CPU,
      {
        title: "Busy, by processor",
        unit: "%",
        max: 100,
        heat: true,
        collector: "cpu",
        level: 2,
        queries: [
          {
            name: "node_cpu_seconds_total",
            where: (labels) => labels.mode === "idle",
            rate: true,
            by: ["cpu"],
            label: "cpu $cpu",
            most: 2048,
            map: (value) => Math.min(Math.max(100 - value * 100, 0), 100),
          },
        ],
      },
      {
        title: "Load",
        unit: "",
        hint: "Number of tasks that run, wait for a processor, or wait uninterruptibly (mostly for disks), averaged over 1, 5 and 15 minutes",
        collector: "load",
        level: 2,
        queries: [gauge("node_load1", "1 min"), gauge("node_load5", "5 min"), gauge("node_load15", "15 min")],
      },
      {
        title: "Tasks",
        unit: "",
        collector: "stat",
        level: 2,
        queries: [gauge("node_procs_running", "running"), gauge("node_procs_blocked", "blocked")],
      },
      {
        title: "Context switches and interrupts",
        unit: "/s",
        collector: "stat",
        level: 2,
        queries: [
          rate("node_context_switches_total", "context switches"),
          rate("node_intr_total", "interrupts"),
          rate("node_forks_total", "forks"),
        ],
      },
      {
        title: "Frequency",
        unit: "hertz",
        collector: "cpufreq",
        level: 3,
        missing: "The kernel does not report processor frequencies.",
        queries: [{ name: "node_cpu_scaling_frequency_hertz", by: ["cpu"], label: "cpu $cpu" }],
      },
    ],
  },
  {
    id: "pressure",
    title: "Pressure",
    panels: [
      {
        title: "Waiting for a processor",
        unit: "%",
        collector: "pressure",
        level: 2,
        missing: "This kernel does not measure pressure; boot with psi=1.",
        queries: [rate("node_pressure_cpu_waiting_seconds_total", "some tasks wait", { map: percent })],
      },
      {
        title: "Waiting for memory",
        unit: "%",
        collector: "pressure",
        level: 2,
        missing: "This kernel does not measure pressure; boot with psi=1.",
        queries: [
          rate("node_pressure_memory_waiting_seconds_total", "some tasks wait", { map: percent }),
          rate("node_pressure_memory_stalled_seconds_total", "all tasks wait", { map: percent }),
        ],
      },
      {
        title: "Waiting for disks",
        unit: "%",
        collector: "pressure",
        level: 2,
        missing: "This kernel does not measure pressure; boot with psi=1.",
        queries: [
          rate("node_pressure_io_waiting_seconds_total", "some tasks wait", { map: percent }),
          rate("node_pressure_io_stalled_seconds_total", "all tasks wait", { map: percent }),
        ],
      },
    ],
  },
  {
    id: "memory",
    title: "Memory",
    panels: [
      MEMORY,
      {
        title: "Swap",
        unit: "bytes",
        collector: "memory",
        level: 2,
        queries: [{ ...memory("SwapTotal") }, { ...memory("SwapFree") }],
        derive: (frame) => [
          { label: "used", data: combined(frame, ["SwapTotal", "SwapFree"], (total, free) => total - free) },
          { label: "total", data: combined(frame, ["SwapTotal"], (total) => total) },
        ],
      },
      {
        title: "Page faults",
        unit: "/s",
        collector: "vmstat",
        level: 2,
        queries: [rate("node_vmstat_pgfault", "all"), rate("node_vmstat_pgmajfault", "with disk access")],
      },
      {
        title: "Waiting to be written",
        unit: "bytes",
        collector: "memory",
        level: 2,
        queries: [
          gauge("node_memory_Dirty_bytes", "dirty"),
          gauge("node_memory_Writeback_bytes", "being written"),
        ],
      },
      {
        title: "Memory by NUMA node",
        unit: "bytes",
        collector: "numa",
        level: 3,
        missing: "This node has no NUMA nodes.",
        queries: [
          { name: "node_memory_numa_MemUsed", by: ["node"], label: "node $node used" },
          { name: "node_memory_numa_MemFree", by: ["node"], label: "node $node free" },
        ],
      },
      {
        title: "Swapping",
        unit: "/s",
        collector: "vmstat",
        level: 2,
        hint: "Pages per second",
        queries: [rate("node_vmstat_pswpin", "in"), rate("node_vmstat_pswpout", "out")],
      },
    ],
  },
  {
    id: "disks",
    title: "Disks and file systems",
    panels: [
      {
        title: "Throughput",
        unit: "bytes/s",
        collector: "disk",
        level: 2,
        queries: [disk("read_bytes_total", "read"), disk("written_bytes_total", "write")],
      },
      {
        title: "Operations",
        unit: "/s",
        collector: "disk",
        level: 2,
        queries: [disk("reads_completed_total", "read"), disk("writes_completed_total", "write")],
      },
      {
        title: "Busy",
        unit: "%",
        max: 100,
        collector: "disk",
        level: 2,
        queries: [disk("io_time_seconds_total", "", { map: percent })],
      },
      {
        title: "Time per write",
        unit: "seconds",
        collector: "disk",
        level: 2,
        queries: [
          disk("write_time_seconds_total", "", { key: "time" }),
          disk("writes_completed_total", "", { key: "count" }),
        ],
        derive: (frame) => joined(frame, ["time", "count"], (time, count) => (count > 0 ? time / count : 0)),
      },
      {
        title: "File system usage",
        unit: "%",
        max: 100,
        collector: "filesystem",
        level: 2,
        hint: "As df(1) computes it: blocks reserved for root count neither as used nor as available",
        queries: FILE_SYSTEMS,
        derive: fileSystemUse,
      },
      {
        title: "Free space",
        unit: "bytes",
        collector: "filesystem",
        level: 2,
        queries: [{ name: "node_filesystem_avail_bytes", by: ["mountpoint"], fold: "max" }],
      },
    ],
  },
  {
    id: "network",
    title: "Network",
    panels: [
      {
        title: "Throughput",
        unit: "bytes/s",
        collector: "network",
        level: 2,
        queries: [link("receive_bytes", "in"), link("transmit_bytes", "out"), LINK_UP],
        derive: activeLinks,
      },
      {
        title: "Packets",
        unit: "/s",
        collector: "network",
        level: 2,
        queries: [link("receive_packets", "in"), link("transmit_packets", "out"), LINK_UP],
        derive: activeLinks,
      },
      {
        title: "Errors and drops",
        unit: "/s",
        collector: "network",
        level: 2,
        queries: [
          ...["receive_errs", "transmit_errs", "receive_drop", "transmit_drop"].map((name) =>
            link(name, name.replace("_", " ")),
          ),
          LINK_UP,
        ],
        derive: activeLinks,
      },
      {
        title: "TCP",
        unit: "/s",
        collector: "netstat",
        level: 2,
        queries: [
          rate("node_netstat_Tcp_InSegs", "segments in"),
          rate("node_netstat_Tcp_OutSegs", "segments out"),
          rate("node_netstat_Tcp_RetransSegs", "retransmitted"),
        ],
      },
      {
        title: "Sockets",
        unit: "",
        collector: "sockstat",
        level: 2,
        queries: [
          gauge("node_sockstat_sockets_used", "all"),
          gauge("node_sockstat_TCP_inuse", "TCP"),
          gauge("node_sockstat_TCP_tw", "TCP, TIME_WAIT"),
          gauge("node_sockstat_UDP_inuse", "UDP"),
        ],
      },
      {
        title: "InfiniBand",
        unit: "bytes/s",
        collector: "infiniband",
        level: 3,
        missing: "This node has no InfiniBand adapter.",
        queries: [
          {
            name: "node_infiniband_port_data_received_bytes_total",
            rate: true,
            by: ["device", "port"],
            label: "$device/$port in",
          },
          {
            name: "node_infiniband_port_data_transmitted_bytes_total",
            rate: true,
            by: ["device", "port"],
            label: "$device/$port out",
          },
        ],
      },
    ],
  },
  {
    id: "gpus",
    title: "GPUs",
    panels: [
      {
        title: "Utilisation",
        unit: "%",
        max: 100,
        collector: "nvidia",
        level: 3,
        missing: NO_GPU,
        queries: [
          { name: "node_nvidia_gpu_utilization_ratio", by: ["gpu"], label: "GPU $gpu", map: percent },
          { name: "node_gpu_busy_ratio", by: ["gpu"], label: "$gpu", map: percent },
        ],
      },
      {
        title: "Memory in use",
        unit: "bytes",
        collector: "nvidia",
        level: 3,
        missing: NO_GPU,
        queries: [
          { name: "node_nvidia_memory_used_bytes", by: ["gpu"], label: "GPU $gpu" },
          { name: "node_gpu_memory_used_bytes", by: ["gpu", "memory"], label: "$gpu $memory" },
        ],
      },
      {
        title: "Power",
        unit: "watts",
        collector: "nvidia",
        level: 3,
        missing: NO_GPU,
        queries: [
          { name: "node_nvidia_power_watts", by: ["gpu"], label: "GPU $gpu" },
          { name: "node_gpu_power_watts", by: ["gpu"], label: "$gpu" },
        ],
      },
      {
        title: "Temperature",
        unit: "celsius",
        collector: "nvidia",
        level: 3,
        missing: NO_GPU,
        queries: [
          { name: "node_nvidia_temperature_celsius", by: ["gpu"], label: "GPU $gpu" },
          { name: "node_gpu_temperature_celsius", by: ["gpu", "sensor"], label: "$gpu $sensor" },
        ],
      },
    ],
  },
  {
    id: "energy",
    title: "Energy and sensors",
    panels: [
      {
        title: "Power of the processors",
        unit: "watts",
        collector: "rapl",
        level: 3,
        missing: "This node has no energy counters (RAPL), or only root may read them.",
        queries: [{ name: "node_rapl_*_joules_total", rate: true, label: "$name $index" }],
      },
      {
        title: "Power of the node",
        unit: "watts",
        collector: "cray",
        level: 3,
        missing: "This node has no power meter (Cray).",
        queries: [{ name: "node_cray_power_watts", by: ["part"] }],
      },
      {
        title: "Temperatures",
        unit: "celsius",
        collector: "hwmon",
        level: 3,
        missing: "This node has no sensors.",
        queries: [
          { name: "node_hwmon_temp_celsius", by: ["chip", "sensor"], label: "$chip $sensor" },
          { name: "node_thermal_zone_temp", by: ["type", "zone"], label: "$type $zone" },
        ],
      },
    ],
  },
  {
    id: "groups",
    title: "Control groups",
    panels: [
      {
        title: "Processor time",
        unit: "%",
        collector: "cgroup",
        level: 3,
        missing: "This node has no control groups with accounting.",
        queries: [{ name: "node_cgroup_cpu_usage_seconds_total", rate: true, by: ["cgroup"], map: percent }],
      },
      {
        title: "Memory",
        unit: "bytes",
        collector: "cgroup",
        level: 3,
        missing: "This node has no control groups with accounting.",
        queries: [{ name: "node_cgroup_memory_usage_bytes", by: ["cgroup"] }],
      },
    ],
  },
];
