//! The series of a simulated child: those of a 12-core node of which a third changes every second.

use pegel_testkit::Rng;
use pegel_tree_protocol::{Kind, NodeOverview, SeriesDefinition};

const CPUS: usize = 12;
const MODES: [&str; 8] = [
    "idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user",
];
const DEVICES: [&str; 4] = ["eth0", "ib0", "nvme0n1", "sda"];
const DEVICE_FIGURES: usize = 26;
const MEMORY_FIGURES: usize = 60;
const KERNEL_FIGURES: usize = 37;

/// CPU modes, devices, memory, the kernel, and three loads.
pub const SERIES_PER_CHILD: usize =
    CPUS * MODES.len() + DEVICES.len() * DEVICE_FIGURES + MEMORY_FIGURES + KERNEL_FIGURES + 3;

/// How a series changes from tick to tick.
#[derive(Debug, Clone, Copy)]
enum SimulatedChange {
    None,
    /// A counter of hundredths of a second.
    Hundredths(f64),
    /// A counter of whole numbers: the mean increase.
    Whole(f64),
    /// A gauge of bytes: a random walk of whole pages.
    Pages(f64),
    /// A gauge with two decimals.
    Decimals,
}

/// The current values of one child, with its own sequence of random numbers.
#[derive(Debug)]
pub(crate) struct SimulatedValues {
    rng: Rng,
    changes: Vec<SimulatedChange>,
    pub values: Vec<f64>,
    busy: f32,
}

impl SimulatedValues {
    pub(crate) fn new(seed: u64) -> SimulatedValues {
        let mut rng = Rng::new(seed);
        let changes = all_changes();
        let values = changes.iter().map(|change| match change {
            SimulatedChange::Decimals => 1.0,
            SimulatedChange::Pages(_) => (rng.below(4_000_000) * 4096) as f64,
            _ => rng.below(100_000_000) as f64,
        });
        let values = values.collect();
        // One node in 200 is far busier than the others.
        let busy = if rng.chance(200) { 99.0 } else { 10.0 };
        SimulatedValues {
            rng,
            changes,
            values,
            busy,
        }
    }

    /// Advances by one tick.
    pub(crate) fn advance(&mut self) {
        for (value, change) in self.values.iter_mut().zip(&self.changes) {
            let noise = match change {
                SimulatedChange::None => continue,
                _ => self.rng.unit() * 2.0 - 1.0,
            };
            match *change {
                SimulatedChange::None => {}
                SimulatedChange::Hundredths(mean) => {
                    *value =
                        ((*value * 100.0).round() + (mean * (1.0 + 0.1 * noise)).round()) / 100.0
                }
                SimulatedChange::Whole(mean) => *value += (mean * (1.0 + 0.3 * noise)).round(),
                SimulatedChange::Pages(wander) => {
                    *value = (*value / 4096.0 + (noise * wander).round()).max(0.0) * 4096.0
                }
                SimulatedChange::Decimals => {
                    *value = ((*value * 100.0 + noise * 3.0).round()).max(0.0) / 100.0
                }
            }
        }
    }

    pub(crate) fn overview(&mut self) -> NodeOverview {
        let noise = self.rng.unit() as f32;
        NodeOverview {
            busy: self.busy + noise,
            memory: 40.0 + 5.0 * noise,
            pressure: 0.1 * noise,
            gpu: f32::NAN,
            network: 1e6 * noise,
            temperature: 45.0 + 3.0 * noise,
            load: self.busy / 8.0,
        }
    }
}

fn all_changes() -> Vec<SimulatedChange> {
    let mut changes = Vec::with_capacity(SERIES_PER_CHILD);
    for _ in 0..CPUS {
        changes.extend(MODES.map(|mode| match mode {
            "idle" => SimulatedChange::Hundredths(60.0),
            "user" => SimulatedChange::Hundredths(35.0),
            "system" => SimulatedChange::Hundredths(5.0),
            _ => SimulatedChange::None,
        }));
    }
    for _ in DEVICES {
        changes.extend((0..DEVICE_FIGURES).map(|figure| match figure {
            0 | 1 => SimulatedChange::Whole(120_000.0),
            2 | 3 => SimulatedChange::Whole(90.0),
            4 => SimulatedChange::Whole(3.0),
            _ => SimulatedChange::None,
        }));
    }
    changes.extend((0..MEMORY_FIGURES).map(|figure| match figure % 3 {
        0 => SimulatedChange::Pages(60.0),
        _ => SimulatedChange::None,
    }));
    changes.extend((0..KERNEL_FIGURES).map(|figure| match figure % 2 {
        0 => SimulatedChange::Whole(if figure < 6 { 9000.0 } else { 12.0 }),
        _ => SimulatedChange::None,
    }));
    changes.extend([SimulatedChange::Decimals; 3]);
    changes
}

/// Returns the definitions, which are the same for all children.
pub(crate) fn definitions() -> Vec<SeriesDefinition> {
    let mut series = Vec::with_capacity(SERIES_PER_CHILD);
    let mut add = |text: String, kind: Kind| {
        series.push(SeriesDefinition {
            id: series.len() as u32,
            text,
            kind: kind.into(),
            unit: String::new(),
            help: "Simulated.".to_owned(),
        });
    };
    for cpu in 0..CPUS {
        for mode in MODES {
            let text = format!("node_cpu_seconds_total{{cpu=\"{cpu}\",mode=\"{mode}\"}}");
            add(text, Kind::Counter);
        }
    }
    for device in DEVICES {
        for figure in 0..DEVICE_FIGURES {
            let text = format!("node_device_figure{figure}_total{{device=\"{device}\"}}");
            add(text, Kind::Counter);
        }
    }
    for figure in 0..MEMORY_FIGURES {
        add(format!("node_memory_Figure{figure}_bytes"), Kind::Gauge);
    }
    for figure in 0..KERNEL_FIGURES {
        add(format!("node_kernel_figure{figure}_total"), Kind::Counter);
    }
    for name in ["node_load1", "node_load5", "node_load15"] {
        add(name.to_owned(), Kind::Gauge);
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_three_hundred_series_changes() {
        assert_eq!((SERIES_PER_CHILD, definitions().len()), (300, 300));
        let mut child = SimulatedValues::new(1);
        let before = child.values.clone();
        child.advance();
        let changed = before.iter().zip(&child.values).filter(|(a, b)| a != b);
        let changed = changed.count();
        assert!((85..=115).contains(&changed), "{changed}");
    }
}
