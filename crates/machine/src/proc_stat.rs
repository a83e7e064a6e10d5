//! The boot time, from `/proc/stat`.

use crate::{Words, parse_u64};

/// Returns the boot time of the node, in seconds since the Unix epoch.
pub fn boot_time_seconds(stat: &[u8]) -> Option<u64> {
    let mut lines = stat.split(|&byte| byte == b'\n').map(Words);
    lines.find_map(|mut words| {
        let is_boot_time = words.next()? == b"btime";
        is_boot_time.then(|| words.next().and_then(parse_u64))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_time_is_found() {
        assert_eq!(boot_time_seconds(b"cpu 1\n\nbtime 123\n"), Some(123));
        assert_eq!(boot_time_seconds(b"btime x\n"), None);
        assert_eq!(boot_time_seconds(b""), None);
    }
}
