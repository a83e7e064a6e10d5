//! The I/O of one process, from `/proc/PID/io`.

use crate::key_value_lines;

/// Bytes of a process and of the children that it waited for. Only the owner of the process and
/// root may read them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessIo {
    /// Passed to read and write calls, whatever was behind them.
    pub rchar: u64,
    pub wchar: u64,
    /// Fetched from and sent to storage.
    pub read_bytes: u64,
    pub write_bytes: u64,
}

impl ProcessIo {
    /// Parses `rchar: 1\nwchar: 2\n…`; `None` if the bytes of storage are not in it.
    pub fn parse(text: &[u8]) -> Option<ProcessIo> {
        let (mut io, mut found) = (ProcessIo::default(), 0);
        for (key, value) in key_value_lines(text) {
            match key {
                "rchar:" => io.rchar = value,
                "wchar:" => io.wchar = value,
                "read_bytes:" => (io.read_bytes, found) = (value, found | 1),
                "write_bytes:" => (io.write_bytes, found) = (value, found | 2),
                _ => {}
            }
        }
        (found == 3).then_some(io)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_storage_are_required() {
        let text = b"rchar: 1\nwchar: 2\nsyscr: 9\nread_bytes: 3\nwrite_bytes: 4\n\
                     cancelled_write_bytes: 9\n";
        let expected = ProcessIo {
            rchar: 1,
            wchar: 2,
            read_bytes: 3,
            write_bytes: 4,
        };
        assert_eq!(ProcessIo::parse(text), Some(expected));
        assert_eq!(ProcessIo::parse(b"rchar: 1\nread_bytes: 3\n"), None);
        assert_eq!(ProcessIo::parse(b""), None);
    }
}
