//! How the processors spend their time.

use std::collections::BTreeMap;

use super::Model;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    User,
    System,
    Irq,
    Steal,
    Wait,
    Idle,
}

impl Mode {
    /// All but idle, in the order in which they are drawn.
    pub const BUSY: [Mode; 5] = [Mode::User, Mode::System, Mode::Irq, Mode::Steal, Mode::Wait];

    pub fn word(self) -> &'static str {
        match self {
            Mode::User => "user",
            Mode::System => "system",
            Mode::Irq => "irq",
            Mode::Steal => "steal",
            Mode::Wait => "iowait",
            Mode::Idle => "idle",
        }
    }

    fn read(word: &str) -> Option<Mode> {
        Some(match word {
            "user" | "nice" => Mode::User,
            "system" => Mode::System,
            "irq" | "softirq" => Mode::Irq,
            "steal" => Mode::Steal,
            "iowait" => Mode::Wait,
            "idle" => Mode::Idle,
            _ => return None,
        })
    }
}

/// Seconds per second in each mode.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Shares([f64; 6]);

impl Shares {
    /// The share of one mode in the time of all.
    pub fn of(&self, mode: Mode) -> f64 {
        let all: f64 = self.0.iter().sum();
        if all > 0.0 {
            self.0[mode as usize] / all
        } else {
            0.0
        }
    }

    /// A processor that waits for a disk could do something else.
    pub fn busy(&self) -> f64 {
        let busy = [Mode::User, Mode::System, Mode::Irq, Mode::Steal];
        busy.into_iter().map(|mode| self.of(mode)).sum()
    }

    /// A processor spends all its time in some mode. Before the second sample only those are known that
    /// did not change, and a processor that was taken away spends none.
    fn is_whole(&self) -> bool {
        self.0.iter().sum::<f64>() > 0.1
    }

    fn add(&mut self, mode: Mode, rate: f64) {
        self.0[mode as usize] += rate;
    }
}

#[derive(Debug, Default)]
pub struct Cpu {
    pub all: Shares,
    /// By number.
    pub cores: Vec<(u32, Shares)>,
}

impl Cpu {
    /// None until there are two samples.
    pub fn of(model: &Model) -> Option<Cpu> {
        let mut cores: BTreeMap<u32, Shares> = BTreeMap::new();
        for track in model.named("node_cpu_seconds_total") {
            let mode = track
                .series
                .label("mode")
                .and_then(|mode| Mode::read(&mode));
            let core = track.series.label("cpu").and_then(|cpu| cpu.parse().ok());
            let (Some(mode), Some(core), Some(rate)) = (mode, core, model.rate(track)) else {
                continue;
            };
            cores.entry(core).or_default().add(mode, rate);
        }
        let mut all = Shares::default();
        cores.retain(|_, shares| shares.is_whole());
        for shares in cores.values() {
            all.0
                .iter_mut()
                .zip(shares.0)
                .for_each(|(sum, rate)| *sum += rate);
        }
        let cores: Vec<(u32, Shares)> = cores.into_iter().collect();
        (!cores.is_empty()).then_some(Cpu { all, cores })
    }
}
