//! What each GPU is asked, one call each, and the series that its answer gives.

use pegel_metric::Family;

use super::abi::{Device, Margin, Memory2, Refusal};
use super::beat::Beat;
use super::families::*;
use super::functions::Functions;

/// The most values that one answer has.
pub(super) const VALUES_MAX: usize = 9;

/// One series of a GPU.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) family: &'static Family,
    /// Beside `gpu`.
    pub(super) labels: &'static [(&'static str, &'static str)],
}

pub(super) const fn of(family: &'static Family) -> Reading {
    Reading {
        family,
        labels: &[],
    }
}

pub(super) const fn with(
    family: &'static Family,
    labels: &'static [(&'static str, &'static str)],
) -> Reading {
    Reading { family, labels }
}

/// A value that is not a number is absent.
type Values = [f64; VALUES_MAX];

#[derive(Debug)]
pub(super) struct Question {
    pub(super) beat: Beat,
    /// In the order of the answer's values.
    pub(super) readings: &'static [Reading],
    pub(super) ask: fn(&Functions, Device, &mut Values) -> Result<(), Refusal>,
}

const fn question(
    beat: Beat,
    readings: &'static [Reading],
    ask: fn(&Functions, Device, &mut Values) -> Result<(), Refusal>,
) -> Question {
    Question {
        beat,
        readings,
        ask,
    }
}

/// A call that gives one number.
macro_rules! number {
    ($beat:ident $family:ident = $function:ident / $scale:literal) => {
        question(Beat::$beat, &[of(&$family)], |nvml, device, values| {
            values[0] = nvml.$function.ask(device)? as f64 / $scale;
            Ok(())
        })
    };
}

/// The utilisation of an engine, in percent, beside the time over which it was measured.
macro_rules! engine {
    ($family:ident = $function:ident) => {
        question(Beat::Second, &[of(&$family)], |nvml, device, values| {
            values[0] = percent(nvml.$function.ask(device)?.0);
            Ok(())
        })
    };
}

/// A call that is told which of several numbers to give.
macro_rules! selected {
    ($beat:ident $reading:expr => $function:ident($which:literal) * $scale:literal) => {
        question(Beat::$beat, &[$reading], |nvml, device, values| {
            values[0] = f64::from(nvml.$function.ask(device, $which)?) * $scale;
            Ok(())
        })
    };
}

pub(super) static QUESTIONS: &[Question] = &[
    question(
        Beat::Each,
        &[
            of(&GPU_UTILIZATION),
            of(&MEMORY_UTILIZATION),
            of(&DRAGON_UTILIZATION),
        ],
        utilization,
    ),
    engine!(ENCODER = encoder),
    engine!(DECODER = decoder),
    engine!(JPEG = jpeg),
    engine!(OFA = ofa),
    question(
        Beat::Each,
        &[
            of(&MEMORY_TOTAL),
            of(&MEMORY_USED),
            of(&MEMORY_FREE),
            of(&MEMORY_RESERVED),
            of(&DRAGON_MEMORY),
        ],
        memory,
    ),
    question(Beat::Rare, &[of(&BAR1_TOTAL), of(&BAR1_USED)], bar1),
    question(Beat::Each, &[of(&POWER), of(&DRAGON_POWER)], power),
    number!(Rare POWER_LIMIT = power_limit / 1000.0),
    number!(Rare ENERGY = energy / 1000.0),
    selected!(Each of(&TEMPERATURE) => temperature(0) * 1.0),
    question(Beat::Slow, &[of(&TEMPERATURE_MARGIN)], margin),
    selected!(Each with(&CLOCK, &[("clock", "graphics")]) => clock(0) * 1e6),
    selected!(Each with(&CLOCK, &[("clock", "sm")]) => clock(1) * 1e6),
    selected!(Second with(&CLOCK, &[("clock", "memory")]) => clock(2) * 1e6),
    selected!(Second with(&CLOCK, &[("clock", "video")]) => clock(3) * 1e6),
    selected!(Rare with(&CLOCK_MAX, &[("clock", "graphics")]) => clock_max(0) * 1e6),
    selected!(Rare with(&CLOCK_MAX, &[("clock", "sm")]) => clock_max(1) * 1e6),
    selected!(Rare with(&CLOCK_MAX, &[("clock", "memory")]) => clock_max(2) * 1e6),
    selected!(Rare with(&CLOCK_MAX, &[("clock", "video")]) => clock_max(3) * 1e6),
    question(Beat::Each, &CLOCK_REASONS, clock_events),
    number!(Second PERFORMANCE_STATE = performance_state / 1.0),
    number!(Slow FAN = fan / 100.0),
    number!(Second PCIE_GENERATION = pcie_generation / 1.0),
    number!(Rare PCIE_WIDTH = pcie_width / 1.0),
    number!(Rare PCIE_GENERATION_MAX = pcie_generation_max / 1.0),
    number!(Rare PCIE_WIDTH_MAX = pcie_width_max / 1.0),
    number!(Rare PCIE_REPLAYS = pcie_replays / 1.0),
    selected!(Long of(&PCIE_TRANSMIT) => pcie_throughput(0) * 1e3),
    selected!(Long of(&PCIE_RECEIVE) => pcie_throughput(1) * 1e3),
    question(Beat::Rare, &[of(&ECC_ENABLED)], |nvml, device, values| {
        values[0] = f64::from(nvml.ecc_mode.ask(device)?.0);
        Ok(())
    }),
    question(Beat::Slow, &ECC_COUNTERS, ecc_errors),
];

/// One bit each, from the lowest.
static CLOCK_REASONS: [Reading; 9] = [
    with(&CLOCKS_EVENT, &[("reason", "gpu_idle")]),
    with(&CLOCKS_EVENT, &[("reason", "applications_clocks_setting")]),
    with(&CLOCKS_EVENT, &[("reason", "sw_power_cap")]),
    with(&CLOCKS_EVENT, &[("reason", "hw_slowdown")]),
    with(&CLOCKS_EVENT, &[("reason", "sync_boost")]),
    with(&CLOCKS_EVENT, &[("reason", "sw_thermal_slowdown")]),
    with(&CLOCKS_EVENT, &[("reason", "hw_thermal_slowdown")]),
    with(&CLOCKS_EVENT, &[("reason", "hw_power_brake_slowdown")]),
    with(&CLOCKS_EVENT, &[("reason", "display_clock_setting")]),
];

static ECC_COUNTERS: [Reading; 4] = [
    with(
        &ECC_ERRORS,
        &[("error", "corrected"), ("counter", "volatile")],
    ),
    with(
        &ECC_ERRORS,
        &[("error", "corrected"), ("counter", "aggregate")],
    ),
    with(
        &ECC_ERRORS,
        &[("error", "uncorrected"), ("counter", "volatile")],
    ),
    with(
        &ECC_ERRORS,
        &[("error", "uncorrected"), ("counter", "aggregate")],
    ),
];

fn percent(value: u32) -> f64 {
    f64::from(value) / 100.0
}

fn utilization(nvml: &Functions, device: Device, values: &mut Values) -> Result<(), Refusal> {
    let answer = nvml.utilization.ask(device)?;
    values[0] = percent(answer.gpu);
    values[1] = percent(answer.memory);
    values[2] = f64::from(answer.gpu);
    Ok(())
}

/// The older call counts what the driver reserves as used.
fn memory(nvml: &Functions, device: Device, values: &mut Values) -> Result<(), Refusal> {
    let (total, used, free, reserved) = match nvml.memory2.fill(device, Memory2::asked()) {
        Ok(memory) => (
            memory.total,
            memory.used,
            memory.free,
            memory.reserved as f64,
        ),
        Err(_) => {
            let memory = nvml.memory.ask(device)?;
            (memory.total, memory.used, memory.free, f64::NAN)
        }
    };
    values[0] = total as f64;
    values[1] = used as f64;
    values[2] = free as f64;
    values[3] = reserved;
    values[4] = used as f64 / total as f64 * 100.0;
    Ok(())
}

fn bar1(nvml: &Functions, device: Device, values: &mut Values) -> Result<(), Refusal> {
    let bar1 = nvml.bar1.ask(device)?;
    values[0] = bar1.total as f64;
    values[1] = bar1.used as f64;
    Ok(())
}

fn power(nvml: &Functions, device: Device, values: &mut Values) -> Result<(), Refusal> {
    let watts = f64::from(nvml.power.ask(device)?) / 1000.0;
    values[..2].fill(watts);
    Ok(())
}

fn margin(nvml: &Functions, device: Device, values: &mut Values) -> Result<(), Refusal> {
    values[0] = f64::from(nvml.margin.fill(device, Margin::asked())?.celsius);
    Ok(())
}

fn clock_events(nvml: &Functions, device: Device, values: &mut Values) -> Result<(), Refusal> {
    let reasons = nvml.clock_events.ask(device)?;
    for (bit, value) in values.iter_mut().enumerate() {
        *value = (reasons >> bit & 1) as f64;
    }
    Ok(())
}

fn ecc_errors(nvml: &Functions, device: Device, values: &mut Values) -> Result<(), Refusal> {
    // Errors (0 corrected, 1 not) by counter (0 since the driver was loaded, 1 ever).
    for (value, (error, counter)) in values.iter_mut().zip([(0, 0), (0, 1), (1, 0), (1, 1)]) {
        *value = nvml.ecc_errors.ask(device, error, counter)? as f64;
    }
    Ok(())
}
