//! Example nodes for tests, with constant values.

use serde_json::json;

use super::{AgentSummary, HISTORY_SECONDS, NodeModel};
use crate::api_values::{SeriesInfo, SeriesValue};

/// 2026-11-15 12:00:00 UTC.
pub(crate) const NOW: f64 = 1_794_744_000.0;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ExampleNode {
    pub cores: u32,
    pub gpus: u32,
    pub disks: u32,
    pub interfaces: u32,
    pub programs: u32,
    pub swap: f64,
    pub level: u64,
    /// The busy fraction of a core, given its number and the number of cores.
    pub busy: fn(u32, u32) -> f64,
}

pub(crate) const SMALL: ExampleNode = ExampleNode {
    cores: 2,
    gpus: 0,
    disks: 2,
    interfaces: 2,
    programs: 3,
    swap: 0.0,
    level: 3,
    busy: rising,
};

pub(crate) const LARGE: ExampleNode = ExampleNode {
    cores: 256,
    gpus: 8,
    disks: 30,
    interfaces: 6,
    programs: 40,
    swap: 64.0,
    level: 3,
    busy: rising,
};

/// The node in the picture of the documentation.
pub(crate) const PICTURE: ExampleNode = ExampleNode {
    cores: 96,
    gpus: 4,
    disks: 3,
    interfaces: 3,
    programs: 3,
    swap: 0.0,
    level: 3,
    busy: two_jobs,
};

/// Returns the busy fraction of a core: higher numbers are busier.
fn rising(core: u32, cores: u32) -> f64 {
    f64::from(core + 1) / f64::from(cores + 1)
}

/// Returns the busy fraction of a core: two jobs use a half and a quarter of the cores.
fn two_jobs(core: u32, cores: u32) -> f64 {
    let noise = f64::from(core.wrapping_mul(2_654_435_761) >> 22) / 1024.0;
    match core * 4 / cores {
        0 | 1 => 0.93 + 0.07 * noise,
        2 => 0.35 + 0.5 * noise,
        _ => 0.12 * noise * noise,
    }
}

/// A series: its text, kind, unit, value, and increase per second.
type FixtureSeries = (String, &'static str, &'static str, f64, f64);

const GIB: f64 = (1u64 << 30) as f64;

impl ExampleNode {
    /// Returns the model after four seconds, with a sample every half second.
    pub(crate) fn model(self) -> NodeModel {
        let lines = self.series();
        let mut model = NodeModel::new(0.5);
        model.agent = AgentSummary::from_status(&json!({
            "node": "nid0001", "version": "0.1.0", "level": self.level,
            "collectors": [{"name": "nvidia", "state": "absent", "error": null}],
        }));
        let listed = lines.iter().map(|(text, kind, unit, ..)| SeriesInfo {
            name: text.clone(),
            doc: format!(
                "What {} is, in words.",
                text.split('{').next().unwrap_or("")
            ),
            kind: (*kind).to_owned(),
            unit: (*unit).to_owned(),
        });
        model.set_series_list(listed.collect());
        for step in 0..=8 {
            let seconds = f64::from(step) / 2.0;
            let readings: Vec<SeriesValue> = lines
                .iter()
                .filter(|(.., slope)| step == 0 || *slope != 0.0)
                .map(|(text, _, _, value, slope)| SeriesValue {
                    name: text.clone(),
                    ts: NOW - 4.0 + seconds,
                    value: value + slope * seconds,
                })
                .collect();
            assert!(!model.apply_step(&readings), "all are listed");
        }
        model
    }

    /// Returns the model with the last minutes of these series, as the agent would send them.
    pub(crate) fn add_past(model: &mut NodeModel, series: &[String]) {
        for text in model.start_histories(series) {
            let Some(track) = model.track(&text) else {
                continue;
            };
            let base = model.displayed_value(track).unwrap_or_default();
            let seed = text.bytes().fold(7u32, |hash, byte| {
                hash.wrapping_mul(31).wrapping_add(byte.into())
            });
            let is_counter = track.is_counter();
            let mut sum = 0.0;
            let samples: Vec<(f64, f64)> = (0..HISTORY_SECONDS as u32)
                .map(|second| {
                    let value = (base * wave(seed, second)).min(base.max(100.0));
                    sum += value;
                    let ts = NOW - (HISTORY_SECONDS as f64) + f64::from(second);
                    (ts, if is_counter { sum } else { value })
                })
                .collect();
            model.add_history(&text, &samples);
        }
    }

    fn series(self) -> Vec<FixtureSeries> {
        let busy: Vec<f64> = (0..self.cores)
            .map(|core| (self.busy)(core, self.cores))
            .collect();
        // Waiting for I/O does not count as busy.
        let mean = busy.iter().sum::<f64>() / f64::from(self.cores) * 0.875;
        let mut lines = node(self.swap, mean);
        (0..)
            .zip(busy)
            .for_each(|(core, busy)| lines.extend(cpu(core, busy)));
        (0..self.gpus).for_each(|gpu| lines.extend(nvidia(gpu)));
        (0..self.disks).for_each(|disk| lines.extend(disk_series(disk)));
        (0..self.interfaces).for_each(|index| lines.extend(interface(index)));
        (0..self.programs).for_each(|index| lines.extend(program(index)));
        lines
    }
}

/// Returns factors between 0.2 and 1.1 that rise and fall within a minute or two, with some noise.
fn wave(seed: u32, second: u32) -> f64 {
    let period = 50 + seed % 71;
    let phase = f64::from((second + seed % 97) % period) / f64::from(period);
    let triangle = 1.0 - (2.0 * phase - 1.0).abs();
    let noise = seed.wrapping_add(second).wrapping_mul(2_654_435_761) >> 24;
    0.2 + 0.7 * triangle + 0.2 * f64::from(noise) / 256.0
}

fn gauge(text: impl Into<String>, unit: &'static str, value: f64) -> FixtureSeries {
    (text.into(), "gauge", unit, value, 0.0)
}

fn counter(text: impl Into<String>, unit: &'static str, value: f64, slope: f64) -> FixtureSeries {
    (text.into(), "counter", unit, value, slope)
}

fn node(swap: f64, busy: f64) -> Vec<FixtureSeries> {
    let memory =
        |name: &str, gib: f64| gauge(format!("node_memory_{name}_bytes"), "bytes", gib * GIB);
    let pressure = |name: &str, slope: f64| {
        let text = format!("node_pressure_{name}_seconds_total");
        counter(text, "seconds", 100.0, slope)
    };
    vec![
        gauge("cpu_percent", "", busy * 100.0),
        gauge("used_RAM", "", 25.0),
        memory("MemTotal", 512.0),
        memory("MemFree", 100.0),
        memory("MemAvailable", 384.0),
        memory("Buffers", 4.0),
        memory("Cached", 290.0),
        memory("SReclaimable", 10.0),
        memory("Shmem", 24.0),
        memory("SwapTotal", swap),
        memory("SwapFree", swap * 0.75),
        gauge("node_load1", "", 12.5),
        gauge("node_load5", "", 3.25),
        gauge("node_load15", "", 101.0),
        gauge("node_procs_running", "", 5.0),
        gauge("node_procs_blocked", "", 1.0),
        gauge("node_processes_threads", "", 4321.0),
        gauge("node_boot_time_seconds", "seconds", NOW - 1e6),
        pressure("cpu_waiting", 0.25),
        pressure("memory_waiting", 0.0),
        pressure("memory_stalled", 0.0),
        pressure("io_waiting", 0.625),
        pressure("io_stalled", 0.5),
        counter("node_vmstat_pgfault", "", 3.5e8, 1200.0),
    ]
}

fn cpu(core: u32, busy: f64) -> Vec<FixtureSeries> {
    let modes = [
        ("user", busy * 0.5),
        ("nice", 0.0),
        ("system", busy * 0.25),
        ("irq", 0.0),
        ("softirq", busy * 0.125),
        ("steal", 0.0),
        ("iowait", busy * 0.125),
        ("idle", 1.0 - busy),
    ];
    modes
        .map(|(mode, share)| {
            let text = format!("node_cpu_seconds_total{{cpu=\"{core}\",mode=\"{mode}\"}}");
            counter(text, "seconds", 1000.0, share)
        })
        .to_vec()
}

fn nvidia(gpu: u32) -> Vec<FixtureSeries> {
    let of = f64::from(gpu);
    let text = |what: &str| format!("node_nvidia_{what}{{gpu=\"{gpu}\"}}");
    let info = format!("node_nvidia_info{{driver=\"580\",gpu=\"{gpu}\",name=\"NVIDIA H200\"}}");
    let clock = format!("node_nvidia_clock_hertz{{clock=\"sm\",gpu=\"{gpu}\"}}");
    vec![
        gauge(info, "", 1.0),
        gauge(text("gpu_utilization_ratio"), "ratio", of / 7.0),
        gauge(text("memory_utilization_ratio"), "ratio", of / 14.0),
        gauge(text("memory_used_bytes"), "bytes", of * 17.3 * GIB),
        gauge(text("memory_total_bytes"), "bytes", 140.4 * GIB),
        gauge(text("power_watts"), "watts", 77.7 + of * 88.0),
        gauge(text("power_limit_watts"), "watts", 700.0),
        gauge(text("temperature_celsius"), "celsius", 30.0 + of * 5.0),
        gauge(clock, "hertz", 345e6 + of * 230e6),
    ]
}

fn disk_series(disk: u32) -> Vec<FixtureSeries> {
    let of = f64::from(disk);
    let line = |what: &str, unit, value: f64, slope: f64| {
        let text = format!("node_disk_{what}{{device=\"nvme{disk}n1\"}}");
        counter(text, unit, value, slope)
    };
    let mount =
        format!("{{device=\"/dev/nvme{disk}n1\",fstype=\"xfs\",mountpoint=\"/scratch/{disk}\"}}");
    let size = |what: &str, gib: f64| {
        gauge(
            format!("node_filesystem_{what}_bytes{mount}"),
            "bytes",
            gib * GIB,
        )
    };
    vec![
        line("reads_completed_total", "", 1e6, 100.0 * of),
        line("writes_completed_total", "", 1e6, 10.0),
        line("read_bytes_total", "bytes", 1e12 - of, 1e6 * of),
        line("written_bytes_total", "bytes", 1e12, 1e9 / (of + 1.0)),
        line("read_time_seconds_total", "seconds", 1e3, 0.01 * of),
        line("write_time_seconds_total", "seconds", 1e3, 0.5),
        line("io_time_seconds_total", "seconds", 1e3, of / 29.0),
        gauge(
            format!("node_disk_io_now{{device=\"nvme{disk}n1\"}}"),
            "",
            of,
        ),
        size("size", 1000.0),
        size("free", 900.0 - of * 30.0),
        size("avail", 850.0 - of * 29.0),
        gauge(
            format!("node_filesystem_device_error{mount}"),
            "",
            f64::from(disk == 1),
        ),
    ]
}

/// Returns the series of one interface; the first is the loopback interface.
fn interface(index: u32) -> Vec<FixtureSeries> {
    let name = if index == 0 {
        "lo".to_owned()
    } else {
        format!("hsn{}", index - 1)
    };
    let of = f64::from(index);
    let line = |what: &str, unit, value: f64, slope: f64| {
        let text = format!("node_network_{what}{{device=\"{name}\"}}");
        counter(text, unit, value, slope)
    };
    vec![
        line(
            "receive_bytes_total",
            "bytes",
            1e12 * (9.0 - of),
            1.2e9 * of,
        ),
        line("transmit_bytes_total", "bytes", 1e9, 3e5),
        line("receive_packets_total", "", 1e6, 1e5 * of),
        line("transmit_packets_total", "", 1e6, 12.5),
        line("receive_errs_total", "", 3.0, 0.0),
        line("receive_drop_total", "", 3.0, f64::from(index == 2)),
        gauge(
            format!("node_network_up{{device=\"{name}\"}}"),
            "",
            f64::from(index != 3),
        ),
        gauge(
            format!("node_network_speed_bytes{{device=\"{name}\"}}"),
            "",
            25e9,
        ),
    ]
}

/// Returns the series of one program, with arbitrary names.
fn program(index: u32) -> Vec<FixtureSeries> {
    match index {
        0 => calls(),
        1 => vec![gauge("train.loss", "", 0.412)],
        2 => vec![gauge("evil{what=\"\u{1b}[2J\u{7}日本\u{202e}\"}", "", 1.0)],
        index => vec![counter(
            format!("flux.{index}.kvs.commits"),
            "",
            1e3 * f64::from(index),
            f64::from(index),
        )],
    }
}

/// Returns the calls of wrapped programs: name, calls per second, seconds per second and bytes.
fn calls() -> Vec<FixtureSeries> {
    let all = [
        ("mpi", "call", "MPI_Allreduce", 3400.0, 0.25, Some(6.5e6)),
        ("mpi", "call", "MPI_Waitall", 120.0, 0.75, None),
        ("mpi", "call", "MPI_Isend", 960.0, 0.0125, Some(4.2e8)),
        ("strace", "scall", "futex", 250.0, 3.5, None),
        ("strace", "scall", "read", 8000.0, 0.5, Some(1.2e9)),
        ("strace", "scall", "write", 40.0, 0.02, Some(3.2e5)),
        ("strace", "scall", "openat", 12.0, 0.0005, None),
    ];
    let series = all
        .into_iter()
        .flat_map(|(kind, label, call, calls, time, bytes)| {
            let text = |what: &str| format!("{kind}_{what}_total{{{label}=\"{call}\"}}");
            let size = bytes.map(|bytes| counter(text("size"), "bytes", bytes * 1e3, bytes));
            let errors = (call == "openat").then(|| counter(text("errors"), "", 40.0, 3.0));
            [
                Some(counter(text("hits"), "", calls * 1e3, calls)),
                Some(counter(text("time"), "seconds", time * 1e3, time)),
                size,
                errors,
            ]
        });
    series.flatten().collect()
}
