//! What remote write out reads: answers of receivers, and its position files.

use std::time::{Duration, UNIX_EPOCH};

use pegel_sink::remote_write::fuzzing::{parse_position, parse_retry_after};

use super::Target;

pub(super) const RETRY_AFTER: Target = Target {
    name: "retry_after",
    run: retry_after,
    dictionary: &[b"Sun, ", b"06 Nov 1994", b" 08:49:37", b" GMT", b"120"],
    seeds: || {
        [
            "7",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "99999999999999999999",
            "",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    },
};

pub(super) const POSITION: Target = Target {
    name: "write_position",
    run: position,
    dictionary: &[b"pegel-remote-write-1", b" 1", b" 24", b" 0"],
    seeds: || {
        ["1 24 0 1", "3 24 7 2 4 900 0 4 10000"]
            .map(|numbers| {
                let text = format!("pegel-remote-write-1 {numbers}");
                let crc = crc32fast::hash(text.as_bytes());
                format!("{text} {crc:08x}").into_bytes()
            })
            .to_vec()
    },
};

/// Checks that a pause is bounded, regardless of the header.
fn retry_after(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    if let Some(pause) = parse_retry_after(text, now) {
        assert!(pause <= Duration::from_secs(600));
    }
}

/// Checks that a valid position can be written and parsed again.
fn position(input: &[u8]) {
    assert_ne!(parse_position(input), Some(false));
}
