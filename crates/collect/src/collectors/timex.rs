//! How well the clock keeps time, from `adjtimex(2)`.

use std::path::PathBuf;

use pegel_metric::{Family, Group, Kind};

use crate::scan::Fault;
use crate::single::Single;
use crate::{CollectError, Collector, Context, Entry, Host, OpenError, Opened, Pace, Tier};

macro_rules! readings {
    ($($static:ident $kind:ident $name:literal $unit:literal $help:literal;)*) => {
        $(static $static: Family =
            Family::new(concat!("node_timex_", $name), Kind::$kind, $unit, 2, $help);)*
        static FAMILIES: [&Family; COUNT] = [$(&$static),*];
    };
}

const COUNT: usize = 17;
readings! {
    OFFSET Gauge "offset_seconds" "seconds" "How far the clock is from the reference it follows.";
    FREQUENCY Gauge "frequency_adjustment_ratio" "ratio" "How fast the clock is made to run; 1 is as the hardware counts.";
    MAX_ERROR Gauge "maxerror_seconds" "seconds" "The clock is not further off than this.";
    ESTIMATED Gauge "estimated_error_seconds" "seconds" "How far off the clock probably is.";
    STATUS Gauge "status" "" "The state of the clock, as bits.";
    CONSTANT Gauge "loop_time_constant" "" "How slowly the clock is corrected.";
    TICK Gauge "tick_seconds" "seconds" "Time between two ticks of the clock.";
    PPS_FREQUENCY Gauge "pps_frequency_hertz" "hertz" "Frequency of the signal that beats each second.";
    PPS_JITTER Gauge "pps_jitter_seconds" "seconds" "How far that signal wanders.";
    PPS_SHIFT Gauge "pps_shift_seconds" "seconds" "Time over which that signal is averaged, as a power of two.";
    PPS_STABILITY Gauge "pps_stability_hertz" "hertz" "How far the frequency of that signal wanders.";
    PPS_JITTERS Counter "pps_jitter_total" "" "Times that the signal came too early or too late.";
    PPS_CALIBRATIONS Counter "pps_calibration_total" "" "Times that the clock was measured by the signal.";
    PPS_ERRORS Counter "pps_error_total" "" "Measurements by the signal that failed.";
    PPS_EXCEEDED Counter "pps_stability_exceeded_total" "" "Times that the signal's frequency wandered too far.";
    TAI Gauge "tai_offset_seconds" "seconds" "Atomic time minus the clock's, once leap seconds are known.";
    SYNC Gauge "sync_status" "" "1 if the clock follows a reference.";
}

pub static ENTRY: Entry = Entry {
    name: "timex",
    tier: Tier::FiveSeconds,
    pace: Pace::Here,
    level: 2,
    families: &FAMILIES,
    open,
};

#[derive(Debug)]
struct Timex {
    singles: [Single; COUNT],
}

/// A machine made of files has no clock of its own.
fn open(context: &Context) -> Result<Opened, OpenError> {
    let local = Host::local().root;
    if context.host.root != local {
        return Ok(Opened::Absent {
            looked_for: PathBuf::from("adjtimex(2)"),
        });
    }
    Ok(Opened::Active(Box::new(Timex {
        singles: FAMILIES.map(Single::new),
    })))
}

impl Collector for Timex {
    fn collect(&mut self, out: &mut Group) -> Result<(), CollectError> {
        let source = || PathBuf::from("adjtimex(2)");
        let (clock, is_synchronised) = read_timex().map_err(|error| CollectError::Read {
            path: source(),
            source: error,
        })?;
        for (single, value) in self.singles.iter_mut().zip(values(&clock, is_synchronised)) {
            let set = single.set(out, value);
            set.map_err(|error| Fault::from(error).at(&source()))?;
        }
        Ok(())
    }
}

/// Whether this machine's clock follows a reference.
pub fn is_synchronised() -> std::io::Result<bool> {
    Ok(read_timex()?.1)
}

/// What the kernel knows about its clock, and whether it follows a reference.
fn read_timex() -> std::io::Result<(libc::timex, bool)> {
    // SAFETY: all fields are integers, for which zero is valid; zero modes ask and change nothing.
    let mut clock: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live timex, which the call fills in.
    let state = unsafe { libc::adjtimex(&mut clock) };
    if state < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok((clock, state != libc::TIME_ERROR))
}

/// In the order of the families.
fn values(clock: &libc::timex, is_synchronised: bool) -> [f64; COUNT] {
    // A part in a million, in the kernel's fixed point.
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
    fn nanoseconds_are_told_by_a_bit() {
        let (mut clock, _) = read_timex().expect("anybody may ask");
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
