//! CPU time per CPU and mode, from `/proc/stat`.
//!
//! Runs on the sampler's thread at every tick and allocates nothing per sample. Counters never
//! decrease: small steps back of the kernel's estimates are held, larger ones count as a replugged
//! CPU.

use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Family, SampleGroup, Slot};

use crate::cursor_map::CursorMap;
use crate::families::families;
use crate::proc_file::SharedFile;
use crate::proc_parse::{ProcParseError, Words, label_value, non_empty_lines, parse_u64s};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{CollectError, Collector, CollectorEntry, Context, OpenOutcome, OpenResult, Tier};

families! {
    SECONDS Counter 2 "node_cpu_seconds_total" "seconds" "Total time that the CPU spent in each mode, in seconds.";
    GUEST Counter 2 "node_cpu_guest_seconds_total" "seconds" "Total time that the CPU spent running virtual machines, in seconds; included in user and nice.";
    PERCENT Gauge 2 "cpu_percent" "" "Share of the last interval in which the CPUs of the node were busy, in percent.";
}

pub static ENTRY: CollectorEntry = CollectorEntry::inline("cpu", Tier::Fast, FAMILIES, open);

/// The number of columns of a `cpu` line. Old kernels have fewer; columns appended by newer kernels
/// are ignored.
const COLUMNS: usize = 10;
const MODES: [&str; COLUMNS] = [
    "user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "user", "nice",
];
const IDLE: usize = 3;
const IOWAIT: usize = 4;
/// Index of the first column of guest time, which is included in user and nice.
const GUEST_FIRST: usize = 8;
/// Idle time is an estimate and may decrease slightly. A larger decrease means that the CPU was
/// replugged.
const REPLUGGED_SECONDS: u64 = 3;

#[derive(Debug)]
struct CpuCollector {
    stat: Arc<SharedFile>,
    readings: CpuReadings,
}

#[derive(Debug)]
struct CpuReadings {
    seconds: Arc<Family>,
    guest: Arc<Family>,
    percent: UnlabelledSeries,
    user_hz: u64,
    cpus: CursorMap<CpuSlots>,
    usage: CpuBusyShare,
}

#[derive(Debug, Default)]
struct CpuSlots {
    /// One for each column of this kernel.
    slots: Vec<Slot>,
    last: [u64; COLUMNS],
}

/// The state of the percentage between two passes.
#[derive(Debug, Default)]
struct CpuBusyShare {
    /// Busy and total ticks at the last pass.
    last: Option<(u64, u64)>,
    percent: Option<f64>,
}

#[derive(Debug, PartialEq, Eq)]
struct CpuLine<'a> {
    /// The number of the CPU; empty for the sum of all CPUs.
    cpu: &'a [u8],
    ticks: [u64; COLUMNS],
    columns: usize,
}

fn open(context: &Context) -> OpenResult {
    if !context.proc_stat.open()? {
        return OpenOutcome::absent(context.proc_stat.path().to_owned());
    }
    let readings = CpuReadings::new(context.host.user_hz);
    OpenOutcome::active(CpuCollector {
        stat: context.proc_stat.clone(),
        readings,
    })
}

impl Collector for CpuCollector {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        self.stat.parse_with(|text| self.readings.update(text, out))
    }

    fn read_at(&self) -> Option<Duration> {
        self.stat.read_at()
    }
}

impl CpuReadings {
    fn new(user_hz: u64) -> CpuReadings {
        CpuReadings {
            seconds: Arc::new(SECONDS.clone()),
            guest: Arc::new(GUEST.clone()),
            percent: UnlabelledSeries::new(&PERCENT),
            user_hz,
            cpus: CursorMap::new(),
            usage: CpuBusyShare::default(),
        }
    }

    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        self.cpus.begin_pass();
        let mut is_found = false;
        for (number, line) in non_empty_lines(text)? {
            // The lines of the CPUs come first.
            let Some(rest) = line.strip_prefix(b"cpu") else {
                break;
            };
            let malformed = ProcParseError::at_line(number, "expected the times of a CPU");
            let line = parse(rest).ok_or(malformed)?;
            is_found = true;
            if line.cpu.is_empty() {
                if let Some(percent) = self.usage.update(&line.ticks) {
                    self.percent.set(out, percent)?;
                }
            } else {
                self.update_cpu(&line, out)?;
            }
        }
        if !is_found {
            return Err(ProcParseError::at_line(1, "missing lines with CPU times"));
        }
        self.cpus
            .sweep(|cpu| cpu.slots.into_iter().for_each(|slot| out.retire(slot)));
        Ok(())
    }

    fn update_cpu(
        &mut self,
        line: &CpuLine<'_>,
        out: &mut SampleGroup,
    ) -> Result<(), ProcParseError> {
        let cpu = self.cpus.entry(line.cpu, || Ok(CpuSlots::default()))?;
        if cpu.slots.len() != line.columns {
            // A missing column is absent, not zero.
            cpu.slots.drain(..).for_each(|slot| out.retire(slot));
            let label = label_value(line.cpu);
            for (column, mode) in MODES.iter().enumerate().take(line.columns) {
                let family = if column < GUEST_FIRST {
                    &self.seconds
                } else {
                    &self.guest
                };
                let labels = [("cpu", &*label), ("mode", mode)];
                cpu.slots.push(out.declare(family, &labels)?);
            }
        }
        let is_replugged =
            line.ticks[IDLE].saturating_add(REPLUGGED_SECONDS * self.user_hz) < cpu.last[IDLE];
        for (column, &slot) in cpu.slots.iter().enumerate() {
            let ticks = line.ticks[column];
            if is_replugged || ticks > cpu.last[column] {
                cpu.last[column] = ticks;
            }
            out.set(slot, cpu.last[column] as f64 / self.user_hz as f64);
        }
        Ok(())
    }
}

impl CpuBusyShare {
    /// Returns the share of busy ticks since the last call, or the previous share if no tick has
    /// passed.
    fn update(&mut self, ticks: &[u64; COLUMNS]) -> Option<f64> {
        let all = ticks[..GUEST_FIRST]
            .iter()
            .fold(0_u64, |sum, &ticks| sum.saturating_add(ticks));
        let busy = all
            .saturating_sub(ticks[IDLE])
            .saturating_sub(ticks[IOWAIT]);
        if let Some((busy_before, all_before)) = self.last.replace((busy, all))
            && all > all_before
        {
            let share = busy.saturating_sub(busy_before) as f64 / (all - all_before) as f64;
            self.percent = Some(share.min(1.0) * 100.0);
        }
        self.percent
    }
}

/// Parses the rest of a line after `cpu`: a number for one CPU or nothing for the sum, then the
/// columns.
fn parse(rest: &[u8]) -> Option<CpuLine<'_>> {
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (cpu, columns) = rest.split_at(digits);
    if !columns.starts_with(b" ") {
        return None;
    }
    let mut ticks = [0; COLUMNS];
    let columns = parse_u64s(Words(columns), &mut ticks)?;
    // Every kernel has at least user, nice, system and idle.
    (columns > IDLE).then_some(CpuLine {
        cpu,
        ticks,
        columns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::{present_series, update_fails};

    fn pass(readings: &mut CpuReadings, group: &mut SampleGroup, text: &str) -> Vec<String> {
        group.clear();
        readings.update(text.as_bytes(), group).expect("valid");
        present_series(group)
    }

    #[test]
    fn new_columns_are_ignored_and_missing_ones_absent() {
        let (mut readings, mut group) = (CpuReadings::new(100), SampleGroup::new("cpu", 3, 1000));
        let text =
            "cpu  1 2 3 4\ncpu0 100 200 300 18446744073709551615\ncpu7 1 2 3 4 5 6 7 8 9 10 11 x\n";
        let found = pass(&mut readings, &mut group, text);
        assert_eq!(found.len(), 4 + 10);
        assert_eq!(
            found[0],
            "node_cpu_seconds_total{cpu=\"0\",mode=\"user\"} 1"
        );
        assert_eq!(
            found[3],
            "node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"} 1.8446744073709552e17"
        );
        assert_eq!(
            found[12],
            "node_cpu_guest_seconds_total{cpu=\"7\",mode=\"user\"} 0.09"
        );
    }

    #[test]
    fn columns_appear_and_disappear() {
        let (mut readings, mut group) = (CpuReadings::new(100), SampleGroup::new("cpu", 3, 1000));
        for columns in [10, 4, 8, 10] {
            let text = format!("cpu0 {}\n", vec!["7"; columns].join(" "));
            let found = pass(&mut readings, &mut group, &text);
            assert_eq!(found.len(), columns);
            assert!(
                found.iter().all(|line| line.ends_with(" 0.07")),
                "{found:?}"
            );
        }
        assert_eq!(group.members().series.len(), 10);
    }

    #[test]
    fn an_unplugged_cpu_is_absent_and_restarts_from_zero() {
        let (mut readings, mut group) = (CpuReadings::new(100), SampleGroup::new("cpu", 3, 1000));
        let both = "cpu  2 0 0 2\ncpu0 1 0 0 1\ncpu1 900 0 0 900\n";
        assert_eq!(pass(&mut readings, &mut group, both).len(), 8);
        assert_eq!(
            pass(&mut readings, &mut group, "cpu  1 0 0 1\ncpu0 1 0 0 1\n").len(),
            4
        );
        let again = pass(
            &mut readings,
            &mut group,
            "cpu  2 0 0 2\ncpu0 1 0 0 1\ncpu1 5 0 0 5\n",
        );
        assert!(again.contains(&"node_cpu_seconds_total{cpu=\"1\",mode=\"user\"} 0.05".to_owned()));
        assert_eq!(
            group.members().series.len(),
            8 + 1,
            "its slots are reused, plus the percentage"
        );
    }

    #[test]
    fn counters_hold_when_the_kernel_steps_back_slightly() {
        let (mut readings, mut group) = (CpuReadings::new(100), SampleGroup::new("cpu", 3, 1000));
        pass(&mut readings, &mut group, "cpu0 50 0 0 1000\n");
        let held = pass(&mut readings, &mut group, "cpu0 51 0 0 701\n");
        assert_eq!(
            (held[0].as_str(), held[3].as_str()),
            (
                "node_cpu_seconds_total{cpu=\"0\",mode=\"user\"} 0.51",
                "node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"} 10",
            )
        );
        let reset = pass(&mut readings, &mut group, "cpu0 2 0 0 3\n");
        assert!(
            reset[0].ends_with("} 0.02") && reset[3].ends_with("} 0.03"),
            "{reset:?}"
        );
    }

    #[test]
    fn the_percentage_is_that_of_the_last_interval() {
        let mut usage = CpuBusyShare::default();
        assert_eq!(usage.update(&[10, 0, 10, 70, 10, 0, 0, 0, 5, 0]), None);
        // 40 ticks later: 10 user, 6 of them guest, 10 system, 15 idle, 5 waiting.
        assert_eq!(
            usage.update(&[20, 0, 20, 85, 15, 0, 0, 0, 11, 0]),
            Some(50.0)
        );
        assert_eq!(
            usage.update(&[20, 0, 20, 85, 15, 0, 0, 0, 11, 0]),
            Some(50.0)
        );
        assert_eq!(
            usage.update(&[30, 0, 20, 85, 14, 0, 0, 0, 11, 0]),
            Some(100.0)
        );
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let update =
            |text: &[u8]| CpuReadings::new(100).update(text, &mut SampleGroup::new("cpu", 3, 1000));
        update_fails(
            update,
            &[
                ("", 0, "empty file"),
                ("cpu  1 2 3 4\ncpu0 1 2", 2, "the last line is cut off"),
                ("cpu  1 2 3 4\ncpu0 1 2\n", 2, "expected the times of a CPU"),
                (
                    "cpu  1 2 3 4\ncpu0 1 2 3 18446744073709551616\n",
                    2,
                    "expected the times of a CPU",
                ),
                ("cpux 1 2 3 4\n", 1, "expected the times of a CPU"),
                ("intr 5\n", 1, "missing lines with CPU times"),
                ("\0\u{fffd}\n", 1, "missing lines with CPU times"),
            ],
        );
    }
}
