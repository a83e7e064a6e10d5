//! The order in which people number devices.

use std::cmp::Ordering;

/// Compares names with runs of digits as numbers: `cpu2` before `cpu10`.
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut rest_a, mut rest_b) = (a.as_bytes(), b.as_bytes());
    while !rest_a.is_empty() && !rest_b.is_empty() {
        let (word_a, number_a, after_a) = split(rest_a);
        let (word_b, number_b, after_b) = split(rest_b);
        let by_number = || (number_a.len(), number_a).cmp(&(number_b.len(), number_b));
        let order = word_a.cmp(word_b).then_with(by_number);
        if order.is_ne() {
            return order;
        }
        (rest_a, rest_b) = (after_a, after_b);
    }
    // Names that differ only in leading zeros, or of which one continues.
    rest_a.len().cmp(&rest_b.len()).then_with(|| a.cmp(b))
}

/// Splits off the letters before the first number, and that number without leading zeros.
fn split(name: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let letters = name
        .iter()
        .take_while(|byte| !byte.is_ascii_digit())
        .count();
    let (word, rest) = name.split_at(letters);
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, after) = rest.split_at(digits);
    let zeros = number.iter().take_while(|byte| **byte == b'0').count();
    (word, &number[zeros..], after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_by_value() {
        let sorted = [
            "", "1", "02", "2", "10", "cpu", "cpu0", "cpu2", "cpu10", "cpufreq", "cpux1",
            "nvme1n2", "nvme1n10", "nvme2",
        ];
        let mut names = sorted;
        names.reverse();
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(names, sorted);
    }
}
