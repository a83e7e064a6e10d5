// In place of the agent's samples: a node with 64 processors and two GPUs on which a job starts writing a checkpoint
// 40 seconds before the end. The same at every run, so that pictures of it can be compared.
(() => {
  const END = Date.UTC(2026, 4, 12, 10, 24);
  const SECONDS = 900;
  const CHECKPOINT = SECONDS - 40;
  const GIB = 2 ** 30;
  Date.now = () => END;

  /** Values that vary around a mean; `total` is their sum since the beginning. */
  const wave = (mean, swing, period, phase = 0) => ({
    value: (t) => mean + swing * Math.sin((t / period + phase) * 2 * Math.PI) + swing * 0.4 * Math.sin(t / 3.7 + phase * 9),
    total(t) {
      const turn = (period / (2 * Math.PI)) * swing;
      const slow = turn * (Math.cos(phase * 2 * Math.PI) - Math.cos((t / period + phase) * 2 * Math.PI));
      const quick = swing * 0.4 * 3.7 * (Math.cos(phase * 9) - Math.cos(t / 3.7 + phase * 9));
      return mean * t + slow + quick;
    },
  });
  const later = (before, after) => ({
    value: (t) => (t < CHECKPOINT ? before : after).value(t),
    total: (t) => before.total(Math.min(t, CHECKPOINT)) + (t < CHECKPOINT ? 0 : after.total(t) - after.total(CHECKPOINT)),
  });

  const series = [];
  const add = (type, unit, name, labels, of) => series.push({ name, labels, type, unit, of });
  const counter = (unit, name, labels, rate) => add("counter", unit, name, labels, (t) => rate.total(t));
  const gauge = (unit, name, labels, values) =>
    add("gauge", unit, name, labels, (t) => (typeof values === "number" ? values : values.value(t)));

  for (let cpu = 0; cpu < 64; cpu += 1) {
    const phase = (cpu * 7) % 64 / 64;
    const modes = {
      user: later(wave(0.78, 0.08, 140, phase), wave(0.5, 0.1, 90, phase)),
      system: later(wave(0.04, 0.01, 60, phase), wave(0.16, 0.03, 50, phase)),
      iowait: later(wave(0.01, 0.005, 70, phase), wave(0.12, 0.04, 40, phase)),
    };
    const busy = Object.values(modes);
    modes.idle = { total: (t) => t - busy.reduce((sum, mode) => sum + mode.total(t), 0) };
    for (const [mode, rate] of Object.entries(modes))
      counter("seconds", "node_cpu_seconds_total", { cpu: `${cpu}`, mode }, rate);
  }
  const memory = {
    MemTotal: 503.5 * GIB,
    MemAvailable: later(wave(214 * GIB, 2 * GIB, 300), wave(205 * GIB, 2 * GIB, 300)),
    MemFree: later(wave(88 * GIB, GIB, 200), wave(31 * GIB, GIB, 200)),
    Cached: later(wave(121 * GIB, GIB, 200, 0.5), wave(178 * GIB, GIB, 200, 0.5)),
    Buffers: 1.2 * GIB,
    SReclaimable: 6.1 * GIB,
    Shmem: 9.4 * GIB,
    SwapTotal: 0,
    SwapFree: 0,
  };
  for (const [name, values] of Object.entries(memory)) gauge("bytes", `node_memory_${name}_bytes`, {}, values);
  gauge("", "node_load1", {}, later(wave(55, 2, 170), wave(64, 3, 170)));
  gauge("", "node_load5", {}, later(wave(54, 1, 290), wave(57, 1, 290)));
  gauge("", "node_load15", {}, wave(53, 0.4, 700));
  gauge("", "node_procs_running", {}, later(wave(56, 3, 60), wave(41, 3, 60)));
  gauge("", "node_procs_blocked", {}, later(wave(0.4, 0.2, 60), wave(9, 2, 60)));
  counter("seconds", "node_pressure_cpu_waiting_seconds_total", {}, wave(0.021, 0.01, 120));
  counter("seconds", "node_pressure_memory_waiting_seconds_total", {}, wave(0.002, 0.001, 200));
  counter("seconds", "node_pressure_io_waiting_seconds_total", {}, later(wave(0.008, 0.004, 100), wave(0.23, 0.05, 45)));
  for (const [device, write] of [["nvme0n1", 1.9], ["nvme1n1", 1.7]]) {
    counter("seconds", "node_disk_io_time_seconds_total", { device }, later(wave(0.06, 0.02, 80), wave(0.84, 0.05, 60)));
    counter("bytes", "node_disk_read_bytes_total", { device }, wave(38 << 20, 12 << 20, 130));
    counter("bytes", "node_disk_written_bytes_total", { device }, later(wave(22 << 20, 6 << 20, 90), wave(write * GIB, 0.2 * GIB, 50)));
  }
  for (const [mountpoint, device, size, used] of [["/", "/dev/md0", 880, 31], ["/scratch", "/dev/md1", 7000, 71], ["/home", "nas:/home", 90000, 83]]) {
    const labels = { device, fstype: mountpoint === "/home" ? "nfs4" : "xfs", mountpoint };
    gauge("bytes", "node_filesystem_size_bytes", labels, size * GIB);
    gauge("bytes", "node_filesystem_free_bytes", labels, size * GIB * (1 - used / 100));
    gauge("bytes", "node_filesystem_avail_bytes", labels, size * GIB * (1 - used / 100));
  }
  for (const [device, up, receive, transmit] of [["ib0", 1, 1.4 * GIB, 1.3 * GIB], ["eth0", 1, 1.1e6, 3.2e5], ["eth1", 0, 0, 0]]) {
    counter("bytes", "node_network_receive_bytes_total", { device }, wave(receive, receive / 6, 75));
    counter("bytes", "node_network_transmit_bytes_total", { device }, wave(transmit, transmit / 6, 75, 0.1));
    gauge("", "node_network_up", { device }, up);
  }
  for (const gpu of ["0", "1"]) {
    const phase = Number(gpu) / 3;
    gauge("ratio", "node_nvidia_gpu_utilization_ratio", { gpu }, later(wave(0.93, 0.04, 60, phase), wave(0.34, 0.1, 60, phase)));
    gauge("bytes", "node_nvidia_memory_used_bytes", { gpu }, wave(61 * GIB, 2 * GIB, 400, phase));
    gauge("bytes", "node_nvidia_memory_total_bytes", { gpu }, 80 * GIB);
    gauge("watts", "node_nvidia_power_watts", { gpu }, later(wave(612, 30, 60, phase), wave(287, 30, 60, phase)));
    gauge("celsius", "node_nvidia_temperature_celsius", { gpu }, later(wave(64, 1, 200, phase), wave(55, 1, 200, phase)));
  }
  counter("", "pegel_received_total", { input: "collect" }, wave(2000, 0, 60));

  const text = ({ name, labels }) => {
    const pairs = Object.entries(labels).map(([key, value]) => `${key}="${value}"`);
    return pairs.length ? `${name}{${pairs.sort().join(",")}}` : name;
  };
  const begin = END - SECONDS * 1000;
  const range = (url) => {
    const [from, to] = ["start", "end"].map((key) => Number(url.searchParams.get(key)));
    const step = parseFloat(url.searchParams.get("step"));
    const patterns = url.searchParams.getAll("match").map((one) => new RegExp(`^${one.replaceAll("*", ".*")}$`));
    return series
      .filter(({ name }) => patterns.some((pattern) => pattern.test(name)))
      .map(({ name, labels, of }) => {
        const points = [];
        for (let cell = Math.floor(Math.max(from, begin) / step); cell * step <= Math.min(to, END); cell += 1) {
          const sampled = Math.min((cell + 1) * step - 500, END);
          if (sampled >= begin) points.push([cell * step, of((sampled - begin) / 1000)]);
        }
        return { name, labels, points };
      });
  };

  const real = window.fetch;
  window.fetch = async (address, ...rest) => {
    const url = new URL(address, document.baseURI);
    const json = (body) => new Response(JSON.stringify(body));
    if (url.pathname.endsWith("/api/v1/range")) return json(range(url));
    if (url.pathname.endsWith("/api/v1/list"))
      return json(series.map((each) => ({ name: text(each), type: each.type, unit: each.unit, help: "" })));
    const response = await real(address, ...rest);
    if (!url.pathname.endsWith("/status")) return response;
    const status = await response.json();
    const store = { ...status.store, oldest: begin, newest: END, series: 2904 };
    return json({ ...status, node: "node017", started: begin - 86400e3 * 3, store });
  };

  window.EventSource = class {
    constructor() {
      setTimeout(() => {
        const names = series.map(text);
        const values = series.map(({ of }) => of(SECONDS));
        const ids = names.map((_, at) => at);
        this.onmessage?.({ data: JSON.stringify({ at: END, new: names, ids, ago: ids.map(() => 0), values }) });
      }, 50);
    }

    close() {}
  };
})();
