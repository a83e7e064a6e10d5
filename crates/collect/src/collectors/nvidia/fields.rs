//! The values that NVML provides by field ID, many in one call, instead of by a function each.
//!
//! Only IDs with the same meaning in every version of the header are used: those of the newer
//! slowdown counters were reassigned between two versions.

use super::abi::{FieldValue, NvmlError, check};
use super::families::*;
use super::queries::{GpuSeriesSpec, VALUES_MAX, labelled, unlabelled};
use super::query_interval::QueryInterval::{self, EveryPass, Minute, TenSeconds};

#[derive(Debug)]
pub(super) struct NvmlField {
    pub(super) id: u32,
    pub(super) scope: u32,
    pub(super) interval: QueryInterval,
    pub(super) series: GpuSeriesSpec,
    /// The divisor of the value.
    scale: f64,
}

const fn field(
    id: u32,
    scope: u32,
    interval: QueryInterval,
    series: GpuSeriesSpec,
    scale: f64,
) -> NvmlField {
    NvmlField {
        id,
        scope,
        interval,
        series,
        scale,
    }
}

/// The scopes of a power reading.
const GPU: u32 = 0;
const MEMORY: u32 = 2;

#[rustfmt::skip]
pub(super) static FIELDS: &[NvmlField] = &[
    field(82, 0, EveryPass, unlabelled(&MEMORY_TEMPERATURE), 1.0),
    field(186, GPU, EveryPass, unlabelled(&POWER_INSTANT), 1e3),
    field(185, MEMORY, EveryPass, unlabelled(&MEMORY_POWER), 1e3),
    field(142, 0, EveryPass, labelled(&REMAPPED_ROWS, &[("error", "corrected")]), 1.0),
    field(143, 0, EveryPass, labelled(&REMAPPED_ROWS, &[("error", "uncorrected")]), 1.0),
    field(144, 0, EveryPass, unlabelled(&REMAP_PENDING), 1.0),
    field(145, 0, EveryPass, unlabelled(&REMAP_FAILED), 1.0),
    field(29, 0, TenSeconds, labelled(&RETIRED_PAGES, &[("error", "single_bit")]), 1.0),
    field(30, 0, TenSeconds, labelled(&RETIRED_PAGES, &[("error", "double_bit")]), 1.0),
    field(31, 0, TenSeconds, unlabelled(&RETIREMENT_PENDING), 1.0),
    field(74, 0, TenSeconds, labelled(&CLOCKS_EVENT_SECONDS, &[("reason", "sw_power_cap")]), 1e9),
    field(75, 0, Minute, labelled(&CLOCKS_EVENT_SECONDS, &[("reason", "sw_thermal_slowdown")]), 1e9),
    field(76, 0, TenSeconds, labelled(&CLOCKS_EVENT_SECONDS, &[("reason", "sync_boost")]), 1e9),
];

impl NvmlField {
    pub(super) fn value(&self, answer: &FieldValue) -> Result<[f64; VALUES_MAX], NvmlError> {
        let mut values = [f64::NAN; VALUES_MAX];
        values[0] = field_number(answer)? / self.scale;
        Ok(values)
    }
}

/// Decodes the number in an answer according to its type.
pub(super) fn field_number(answer: &FieldValue) -> Result<f64, NvmlError> {
    check(answer.code)?;
    Ok(match answer.kind {
        0 => f64::from_bits(answer.value),
        1 => f64::from(answer.value as u32),
        4 => answer.value as i64 as f64,
        5 => f64::from(answer.value as u32 as i32),
        6 => f64::from(answer.value as u16),
        _ => answer.value as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_decoded_by_its_type() {
        for (kind, value, expected) in [
            (0, 2.5f64.to_bits(), 2.5),
            (1, 0xdead_beef_0000_0007, 7.0),
            (2, 1 << 40, (1u64 << 40) as f64),
            (3, u64::MAX, u64::MAX as f64),
            (4, -8i64 as u64, -8.0),
            (5, 0xffff_fff8, -8.0),
            (6, 0x1_0005, 5.0),
        ] {
            let answer = FieldValue {
                kind,
                value,
                ..FieldValue::default()
            };
            assert_eq!(field_number(&answer), Ok(expected), "type {kind}");
        }
        let refused = FieldValue {
            code: 3,
            ..FieldValue::default()
        };
        assert_eq!(field_number(&refused), Err(NvmlError::Code(3)));
    }
}
