//! Lists of CPUs as the kernel writes them.

/// Returns the number of CPUs in a list such as `0-3,8`.
pub fn cpu_list_count(list: &str) -> Option<usize> {
    let mut count = 0_usize;
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_in_a_list_are_counted() {
        assert_eq!(cpu_list_count("0-3,8"), Some(5));
        assert_eq!(cpu_list_count("7"), Some(1));
        for bad in ["", "3-1", "a", "1,", "0-18446744073709551615"] {
            assert_eq!(cpu_list_count(bad), None, "{bad}");
        }
    }
}
