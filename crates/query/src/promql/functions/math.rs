//! Functions of single values. They treat NaN as Go's do.

/// Returns the larger of two values; NaN if one of them is, unless the other is infinite.
pub(super) fn go_max(a: f64, b: f64) -> f64 {
    let is_nan = a.is_nan() || b.is_nan();
    if is_nan && a != f64::INFINITY && b != f64::INFINITY {
        return f64::NAN;
    }
    a.max(b)
}

/// Returns the smaller of two values; NaN if one of them is, unless the other is infinite.
pub(super) fn go_min(a: f64, b: f64) -> f64 {
    let is_nan = a.is_nan() || b.is_nan();
    if is_nan && a != f64::NEG_INFINITY && b != f64::NEG_INFINITY {
        return f64::NAN;
    }
    a.min(b)
}

pub(super) fn sgn(value: f64) -> f64 {
    if value < 0.0 {
        -1.0
    } else if value > 0.0 {
        1.0
    } else {
        value
    }
}

pub(super) fn deg(value: f64) -> f64 {
    value * 180.0 / std::f64::consts::PI
}

pub(super) fn rad(value: f64) -> f64 {
    value * std::f64::consts::PI / 180.0
}

/// Limits a value; there is none if the limits are reversed.
pub(super) fn clamp(value: f64, parameters: &[f64]) -> Option<f64> {
    let (least, most) = (parameters[0], parameters[1]);
    (most >= least || most.is_nan() || least.is_nan()).then(|| go_max(least, go_min(most, value)))
}

pub(super) fn clamp_max(value: f64, parameters: &[f64]) -> Option<f64> {
    Some(go_min(parameters[0], value))
}

pub(super) fn clamp_min(value: f64, parameters: &[f64]) -> Option<f64> {
    Some(go_max(parameters[0], value))
}

/// Rounds to the nearest multiple, ties up.
pub(super) fn round(value: f64, parameters: &[f64]) -> Option<f64> {
    let nearest = parameters.first().copied().unwrap_or(1.0);
    // Multiplying by the inverse is exact for more of the common cases than dividing.
    let inverse = 1.0 / nearest;
    Some((value * inverse + 0.5).floor() / inverse)
}

pub(super) fn pi(_: &[f64], _: f64) -> f64 {
    std::f64::consts::PI
}

pub(super) fn time(_: &[f64], seconds: f64) -> f64 {
    seconds
}

pub(super) fn max_of(parameters: &[f64], _: f64) -> f64 {
    go_max(parameters[0], parameters[1])
}

pub(super) fn min_of(parameters: &[f64], _: f64) -> f64 {
    go_min(parameters[0], parameters[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_propagate_nan() {
        assert_eq!(clamp(5.0, &[0.0, 3.0]), Some(3.0));
        assert_eq!(clamp(-5.0, &[0.0, 3.0]), Some(0.0));
        assert_eq!(clamp(5.0, &[3.0, 0.0]), None);
        assert!(clamp(f64::NAN, &[0.0, 1.0]).is_some_and(f64::is_nan));
        assert!(clamp(1.0, &[f64::NAN, 1.0]).is_some_and(f64::is_nan));
        assert!(clamp_max(1.0, &[f64::NAN]).is_some_and(f64::is_nan));
        assert_eq!(clamp_min(1.0, &[2.0]), Some(2.0));
        // Infinity precedes NaN.
        let infinity = f64::INFINITY;
        assert_eq!(clamp(-infinity, &[-3.0, f64::NAN]), Some(-3.0));
        assert_eq!(clamp_min(infinity, &[f64::NAN]), Some(infinity));
        assert!(clamp_max(infinity, &[f64::NAN]).is_some_and(f64::is_nan));
    }

    #[test]
    fn rounding_goes_up_at_half() {
        assert_eq!(round(2.5, &[]), Some(3.0));
        assert_eq!(round(-2.5, &[]), Some(-2.0));
        assert_eq!(round(7.3, &[5.0]), Some(5.0));
        assert_eq!(round(0.24, &[0.1]), Some(0.2));
        assert_eq!((sgn(-3.0), sgn(0.0), sgn(0.1)), (-1.0, 0.0, 1.0));
        assert!(sgn(f64::NAN).is_nan());
        assert_eq!(
            (deg(std::f64::consts::PI), rad(180.0)),
            (180.0, std::f64::consts::PI)
        );
    }
}
