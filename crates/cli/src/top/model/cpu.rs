//! CPU time by mode, for the node and for each core.

use std::collections::BTreeMap;

use super::NodeModel;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CpuMode {
    User,
    System,
    Irq,
    Steal,
    IoWait,
    Idle,
}

impl CpuMode {
    /// All modes except idle, in drawing order.
    pub(crate) const BUSY: [CpuMode; 5] = [
        CpuMode::User,
        CpuMode::System,
        CpuMode::Irq,
        CpuMode::Steal,
        CpuMode::IoWait,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            CpuMode::User => "user",
            CpuMode::System => "system",
            CpuMode::Irq => "irq",
            CpuMode::Steal => "steal",
            CpuMode::IoWait => "iowait",
            CpuMode::Idle => "idle",
        }
    }

    fn parse(word: &str) -> Option<CpuMode> {
        Some(match word {
            "user" | "nice" => CpuMode::User,
            "system" => CpuMode::System,
            "irq" | "softirq" => CpuMode::Irq,
            "steal" => CpuMode::Steal,
            "iowait" => CpuMode::IoWait,
            "idle" => CpuMode::Idle,
            _ => return None,
        })
    }
}

/// Seconds per second in each mode.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct CpuShares([f64; 6]);

impl CpuShares {
    /// Returns the fraction of time spent in one mode.
    pub(crate) fn share(&self, mode: CpuMode) -> f64 {
        let all: f64 = self.0.iter().sum();
        if all > 0.0 {
            self.0[mode as usize] / all
        } else {
            0.0
        }
    }

    /// Returns the fraction of busy time. I/O wait is not busy: the CPU could run other tasks.
    pub(crate) fn busy(&self) -> f64 {
        let busy = [CpuMode::User, CpuMode::System, CpuMode::Irq, CpuMode::Steal];
        busy.into_iter().map(|mode| self.share(mode)).sum()
    }

    /// Returns whether the rates are plausible: the modes of a CPU add up to one. The sum is near
    /// zero before the second sample, when only unchanged modes have a rate, and for a CPU that
    /// went offline.
    fn is_complete(&self) -> bool {
        self.0.iter().sum::<f64>() > 0.1
    }

    fn add(&mut self, mode: CpuMode, rate: f64) {
        self.0[mode as usize] += rate;
    }
}

#[derive(Debug, Default)]
pub(crate) struct CpuUsage {
    pub all: CpuShares,
    /// Cores ordered by number.
    pub cores: Vec<(u32, CpuShares)>,
}

impl CpuUsage {
    /// Computes the usage; `None` before the second sample.
    pub(crate) fn from_model(model: &NodeModel) -> Option<CpuUsage> {
        let mut cores: BTreeMap<u32, CpuShares> = BTreeMap::new();
        for track in model.tracks_named("node_cpu_seconds_total") {
            let mode = track
                .series
                .label("mode")
                .and_then(|mode| CpuMode::parse(&mode));
            let core = track.series.label("cpu").and_then(|cpu| cpu.parse().ok());
            let (Some(mode), Some(core), Some(rate)) = (mode, core, model.rate(track)) else {
                continue;
            };
            cores.entry(core).or_default().add(mode, rate);
        }
        let mut all = CpuShares::default();
        cores.retain(|_, shares| shares.is_complete());
        for shares in cores.values() {
            all.0
                .iter_mut()
                .zip(shares.0)
                .for_each(|(sum, rate)| *sum += rate);
        }
        let cores: Vec<(u32, CpuShares)> = cores.into_iter().collect();
        (!cores.is_empty()).then_some(CpuUsage { all, cores })
    }
}
