//! State and accuracy of the kernel clock, from `adjtimex(2)`.

use std::path::PathBuf;

use pegel_metric::SampleGroup;

use crate::families::families;
use crate::proc_parse::ProcParseError;
use crate::unlabelled_series::UnlabelledSeries;
use crate::{
    CollectError, Collector, CollectorEntry, Context, Host, OpenOutcome, OpenResult, Tier,
};

const COUNT: usize = 17;
families! {
    OFFSET Gauge 2 "node_timex_offset_seconds" "seconds" "Offset between the system clock and its reference, in seconds.";
    FREQUENCY Gauge 2 "node_timex_frequency_adjustment_ratio" "ratio" "Adjustment of the clock frequency; 1 means none.";
    MAX_ERROR Gauge 2 "node_timex_maxerror_seconds" "seconds" "Maximum error of the clock, in seconds.";
    ESTIMATED Gauge 2 "node_timex_estimated_error_seconds" "seconds" "Estimated error of the clock, in seconds.";
    STATUS Gauge 2 "node_timex_status" "" "Status of the clock as a bit mask.";
    CONSTANT Gauge 2 "node_timex_loop_time_constant" "" "Time constant of the phase-locked loop.";
    TICK Gauge 2 "node_timex_tick_seconds" "seconds" "Time between two clock ticks, in seconds.";
    PPS_FREQUENCY Gauge 2 "node_timex_pps_frequency_hertz" "hertz" "Frequency of the pulse-per-second signal, in hertz.";
    PPS_JITTER Gauge 2 "node_timex_pps_jitter_seconds" "seconds" "Jitter of the pulse-per-second signal, in seconds.";
    PPS_SHIFT Gauge 2 "node_timex_pps_shift_seconds" "seconds" "Averaging interval of the pulse-per-second signal, as a power of two in seconds.";
    PPS_STABILITY Gauge 2 "node_timex_pps_stability_hertz" "hertz" "Average change of the frequency of the pulse-per-second signal, in hertz.";
    PPS_JITTERS Counter 2 "node_timex_pps_jitter_total" "" "Total number of pulses that exceeded the jitter limit.";
    PPS_CALIBRATIONS Counter 2 "node_timex_pps_calibration_total" "" "Total number of calibration intervals of the pulse-per-second signal.";
    PPS_ERRORS Counter 2 "node_timex_pps_error_total" "" "Total number of failed calibrations of the pulse-per-second signal.";
    PPS_EXCEEDED Counter 2 "node_timex_pps_stability_exceeded_total" "" "Total number of calibrations that exceeded the stability limit.";
    TAI Gauge 2 "node_timex_tai_offset_seconds" "seconds" "Offset between International Atomic Time (TAI) and the system clock, in seconds; 0 until leap seconds are known.";
    SYNC Gauge 2 "node_timex_sync_status" "" "1 if the clock is synchronized to a reference, otherwise 0.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("timex", Tier::FiveSeconds, FAMILIES, open);

#[derive(Debug)]
struct Timex {
    singles: Vec<UnlabelledSeries>,
}

/// Opens the collector; it is absent with another root, because a fixture tree has no clock.
fn open(context: &Context) -> OpenResult {
    let local = Host::local().root;
    if context.host.root != local {
        return OpenOutcome::absent(PathBuf::from("adjtimex(2)"));
    }
    OpenOutcome::active(Timex {
        singles: FAMILIES
            .iter()
            .map(|family| UnlabelledSeries::new(family))
            .collect(),
    })
}

impl Collector for Timex {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        let source = || PathBuf::from("adjtimex(2)");
        let (clock, is_synchronised) = read_timex().map_err(|error| CollectError::Read {
            path: source(),
            source: error,
        })?;
        for (single, value) in self.singles.iter_mut().zip(values(&clock, is_synchronised)) {
            let set = single.set(out, value);
            set.map_err(|error| ProcParseError::from(error).at_path(&source()))?;
        }
        Ok(())
    }
}

/// Returns whether this machine's clock is synchronized to a reference.
pub fn is_synchronised() -> std::io::Result<bool> {
    Ok(read_timex()?.1)
}

/// Reads the kernel's clock state, and whether the clock is synchronized to a reference.
fn read_timex() -> std::io::Result<(libc::timex, bool)> {
    // SAFETY: all fields are integers, for which zero is valid. With `modes` zero the call only
    // reads.
    let mut clock: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for writes of a `timex` during the call.
    let state = unsafe { libc::adjtimex(&mut clock) };
    if state < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok((clock, state != libc::TIME_ERROR))
}

/// Returns the values in the order of the families.
fn values(clock: &libc::timex, is_synchronised: bool) -> [f64; COUNT] {
    // One part per million in the kernel's fixed-point format.
    const PPM: f64 = 65_536.0 * 1e6;
    let is_nano = clock.status & libc::STA_NANO != 0;
    let fine = if is_nano { 1e9 } else { 1e6 };
    [
        clock.offset as f64 / fine,
        1.0 + clock.freq as f64 / PPM,
        clock.maxerror as f64 / 1e6,
        clock.esterror as f64 / 1e6,
        f64::from(clock.status),
        clock.constant as f64,
        clock.tick as f64 / 1e6,
        clock.ppsfreq as f64 / PPM,
        clock.jitter as f64 / fine,
        f64::from(clock.shift),
        clock.stabil as f64 / PPM,
        clock.jitcnt as f64,
        clock.calcnt as f64,
        clock.errcnt as f64,
        clock.stbcnt as f64,
        f64::from(clock.tai),
        f64::from(u8::from(is_synchronised)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_bit_selects_nanoseconds() {
        let (mut clock, _) = read_timex().expect("reading needs no privilege");
        (clock.offset, clock.freq, clock.tick) = (-250_000, -65_536, 10_000);
        clock.status = libc::STA_NANO;
        let found = values(&clock, true);
        assert_eq!(
            (found[0], found[1], found[6]),
            (-0.000_25, 1.0 - 1e-6, 0.01)
        );
        clock.status = 0;
        assert_eq!(values(&clock, false)[0], -0.25);
        assert_eq!(values(&clock, false)[COUNT - 1], 0.0);
    }
}
