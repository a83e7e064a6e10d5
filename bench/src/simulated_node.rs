//! A simulated node: the series of a 24-core machine whose load changes between idle, computing and
//! input. The samples are determined by the seed, so that every run measures the same data.

use std::sync::Arc;

use pegel_metric::{Family, Input, MetricKind, Millis, SampleGroup, Slot, Tick};
use pegel_testkit::Rng;

pub(crate) const CPUS: usize = 24;
const MODES: [&str; 8] = [
    "idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user",
];

/// The activity of the node; it changes every few minutes.
#[derive(Debug, Clone, Copy)]
enum NodePhase {
    Idle,
    Compute,
    Input,
}

/// The simulation; advances by one second per tick.
#[derive(Debug)]
pub struct SimulatedNode {
    rng: Rng,
    phase: NodePhase,
    phase_left: u64,
    groups: Vec<(SampleGroup, Vec<SimulatedSeries>)>,
    tick: Tick,
}

#[derive(Debug)]
struct SimulatedSeries {
    slot: Slot,
    value: f64,
    behaviour: SeriesBehaviour,
}

#[derive(Debug, Clone, Copy)]
enum SeriesBehaviour {
    /// A counter of one CPU mode, in hundredths of a second.
    Cpu(usize),
    /// A counter of events, with rates per second in the compute and input phases.
    Events {
        compute: f64,
        input: f64,
    },
    /// A counter with microsecond resolution, in seconds.
    Stall {
        compute: f64,
        input: f64,
    },
    /// A gauge of bytes in whole pages; a random walk.
    Pages {
        wander: f64,
    },
    /// A gauge with two decimals; a random walk.
    Load,
    /// A gauge with full precision, like a ratio.
    Percent,
    Constant,
}

impl SimulatedNode {
    pub fn new(seed: u64) -> SimulatedNode {
        let mut node = SimulatedNode {
            rng: Rng::new(seed),
            phase: NodePhase::Idle,
            phase_left: 0,
            groups: Vec::new(),
            tick: Tick::new(Input::Collect),
        };
        node.add_cpu();
        node.add_memory();
        node.add_devices("disk", "node_disk", &["sda", "nvme0n1", "dm-0"], 17);
        node.add_devices("network", "node_network", &["lo", "eth0", "ib0", "ib1"], 16);
        node.add_kernel_and_load();
        node
    }

    /// Advances by one second and returns its tick, with timestamp `time`.
    pub fn tick(&mut self, time: Millis) -> &mut Tick {
        if self.phase_left == 0 {
            self.phase = [
                NodePhase::Idle,
                NodePhase::Compute,
                NodePhase::Compute,
                NodePhase::Input,
            ][self.rng.below(4) as usize];
            self.phase_left = 60 + self.rng.below(400);
        }
        self.phase_left -= 1;
        self.tick.reset(time);
        for (group, series) in &mut self.groups {
            group.clear();
            for simulated in series {
                simulated.advance(self.phase, &mut self.rng);
                group.set(simulated.slot, simulated.value);
            }
            group.append_to(&mut self.tick);
        }
        &mut self.tick
    }

    pub fn series_count(&self) -> usize {
        self.groups.iter().map(|(_, series)| series.len()).sum()
    }

    fn group(&mut self, name: &str) -> usize {
        self.groups
            .push((SampleGroup::new(name, 3, 10_000), Vec::new()));
        self.groups.len() - 1
    }

    fn add(
        &mut self,
        group: usize,
        family: &Arc<Family>,
        labels: &[(&str, &str)],
        value: f64,
        behaviour: SeriesBehaviour,
    ) {
        let (group, series) = &mut self.groups[group];
        let slot = group.declare(family, labels).expect("a valid series");
        series.push(SimulatedSeries {
            slot,
            value,
            behaviour,
        });
    }

    fn add_cpu(&mut self) {
        let group = self.group("cpu");
        let family = family("node_cpu_seconds_total", MetricKind::Counter);
        for cpu in 0..CPUS {
            for (mode, name) in MODES.iter().enumerate() {
                let start = self.rng.below(100_000_000) as f64 / 100.0;
                self.add(
                    group,
                    &family,
                    &[("cpu", &cpu.to_string()), ("mode", name)],
                    start,
                    SeriesBehaviour::Cpu(mode),
                );
            }
        }
        let family = self::family("cpu_percent", MetricKind::Gauge);
        self.add(group, &family, &[], 0.0, SeriesBehaviour::Percent);
    }

    fn add_memory(&mut self) {
        let group = self.group("memory");
        for number in 0..54 {
            let behaviour = match number % 5 {
                0 => SeriesBehaviour::Constant,
                1 => SeriesBehaviour::Pages { wander: 4000.0 },
                _ => SeriesBehaviour::Pages { wander: 40.0 },
            };
            let family = family(&format!("node_memory_Key{number}_bytes"), MetricKind::Gauge);
            let start = (self.rng.below(4_000_000) * 4096) as f64;
            self.add(group, &family, &[], start, behaviour);
        }
    }

    fn add_devices(&mut self, name: &str, prefix: &str, devices: &[&str], count: usize) {
        let group = self.group(name);
        for number in 0..count {
            let family = family(
                &format!("{prefix}_figure{number}_total"),
                MetricKind::Counter,
            );
            for (index, device) in devices.iter().enumerate() {
                let behaviour = match (number % 4, index) {
                    (_, 0) => SeriesBehaviour::Events {
                        compute: 0.2,
                        input: 0.5,
                    },
                    (0, _) => SeriesBehaviour::Events {
                        compute: 30.0,
                        input: 5_000.0,
                    },
                    (1, _) => SeriesBehaviour::Events {
                        compute: 200_000.0,
                        input: 600_000_000.0,
                    },
                    (2, _) => SeriesBehaviour::Stall {
                        compute: 800.0,
                        input: 400_000.0,
                    },
                    _ => SeriesBehaviour::Constant,
                };
                self.add(group, &family, &[("device", device)], 1000.0, behaviour);
            }
        }
    }

    fn add_kernel_and_load(&mut self) {
        let group = self.group("rest");
        for (name, behaviour) in [
            (
                "node_context_switches_total",
                SeriesBehaviour::Events {
                    compute: 9_000.0,
                    input: 60_000.0,
                },
            ),
            (
                "node_intr_total",
                SeriesBehaviour::Events {
                    compute: 12_000.0,
                    input: 70_000.0,
                },
            ),
            (
                "node_forks_total",
                SeriesBehaviour::Events {
                    compute: 2.0,
                    input: 1.0,
                },
            ),
            (
                "node_pressure_cpu_waiting_seconds_total",
                SeriesBehaviour::Stall {
                    compute: 90_000.0,
                    input: 2_000.0,
                },
            ),
            (
                "node_pressure_io_waiting_seconds_total",
                SeriesBehaviour::Stall {
                    compute: 10.0,
                    input: 300_000.0,
                },
            ),
            (
                "node_pressure_memory_waiting_seconds_total",
                SeriesBehaviour::Stall {
                    compute: 5.0,
                    input: 50.0,
                },
            ),
        ] {
            let family = family(name, MetricKind::Counter);
            self.add(group, &family, &[], 0.0, behaviour);
        }
        for name in ["node_load1", "node_load5", "node_load15"] {
            let family = family(name, MetricKind::Gauge);
            self.add(group, &family, &[], 1.0, SeriesBehaviour::Load);
        }
    }
}

impl SimulatedSeries {
    fn advance(&mut self, phase: NodePhase, rng: &mut Rng) {
        // Approximately normal with mean zero: a sum of uniform values.
        let noise = (0..4)
            .map(|_| rng.below(1000) as f64 / 1000.0 - 0.5)
            .sum::<f64>();
        let per_second = |compute: f64, input: f64| match phase {
            NodePhase::Idle => compute.min(input) * 0.05,
            NodePhase::Compute => compute,
            NodePhase::Input => input,
        };
        match self.behaviour {
            SeriesBehaviour::Cpu(mode) => {
                let share = match (phase, MODES[mode]) {
                    (NodePhase::Idle, "idle") => 98.0,
                    (NodePhase::Idle, "user" | "system") => 0.6,
                    (NodePhase::Compute, "user") => 93.0,
                    (NodePhase::Compute, "system") => 5.0,
                    (NodePhase::Compute, "idle") => 2.0,
                    (NodePhase::Input, "idle") => 40.0,
                    (NodePhase::Input, "iowait") => 35.0,
                    (NodePhase::Input, "user" | "system") => 12.0,
                    (NodePhase::Input, "softirq") => 1.0,
                    _ => 0.0,
                };
                let ticks = (share + noise * f64::min(share, 4.0))
                    .clamp(0.0, 100.0)
                    .round();
                self.value = ((self.value * 100.0).round() + ticks) / 100.0;
            }
            SeriesBehaviour::Events { compute, input } => {
                let rate = per_second(compute, input);
                self.value += (rate + noise * rate * 0.3).max(0.0).round();
            }
            SeriesBehaviour::Stall { compute, input } => {
                let rate = per_second(compute, input);
                let micros =
                    (self.value * 1e6).round() + (rate + noise * rate * 0.3).max(0.0).round();
                self.value = micros / 1e6;
            }
            SeriesBehaviour::Pages { wander } => {
                self.value = (self.value / 4096.0 + (noise * wander).round()).max(0.0) * 4096.0;
            }
            SeriesBehaviour::Load => {
                self.value = ((self.value * 100.0 + noise * 3.0).round().max(0.0)) / 100.0
            }
            SeriesBehaviour::Percent => {
                self.value = (per_second(95.0, 30.0) + noise * 3.0) * 100.0 / 100.37
            }
            SeriesBehaviour::Constant => {}
        }
    }
}

fn family(name: &str, kind: MetricKind) -> Arc<Family> {
    Arc::new(Family {
        name: name.to_owned().into(),
        kind,
        help: "Simulated.".into(),
        unit: "".into(),
        level: 2,
        input: Input::Collect,
    })
}
