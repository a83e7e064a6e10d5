//! The mark of the end of a series.

/// The NaN with which Prometheus marks the end of a series.
pub const STALE_NAN: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// Returns whether a value marks the end of its series. Other NaNs are values.
#[inline]
pub fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_NAN.to_bits()
}
