//! The protocol between the agent and the wrapper of a program, and the kernel's type descriptions
//! (BTF).

use pegel_run::fuzzing::{reading_again, request_again, tracepoint};

use super::Target;

pub(super) const WATCH: Target = Target {
    name: "watch",
    run: watch,
    dictionary: &[
        b"watch ",
        b"exec ",
        b"now ",
        b" untimed",
        b"counts ",
        b" 1 ",
        b" 0 ",
        b"-",
        b"x3",
        b"k9",
        b"?",
        b" 511:",
        b":18446744073709551615",
    ],
    seeds: || {
        [
            "watch exec 4711 123456",
            "watch now 1 18446744073709551615 untimed",
            "counts 1 1 -",
            "counts 1 0 x42 0:1:2:3:4 511:1:0:0:0",
            "counts 0 0 k9 59:1:0:18446744073709551615:0",
            "counts 1 0 ?",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    },
};

/// A parsed message survives a round trip.
fn watch(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for again in [request_again, reading_again] {
        if let Some(written) = again(&text) {
            assert_eq!(again(&written), Some(written.clone()), "{text:?}");
        }
    }
}

pub(super) const TYPES: Target = Target {
    name: "types",
    run: |input| {
        let _ = tracepoint(input);
    },
    dictionary: &[
        b"\x9f\xeb\x01\x00",
        b"\x18\0\0\0",
        b"btf_trace_sys_exit\0",
        b"linux_binprm\0",
        b"secureexec\0",
        b"\0\0\0\x08",
        b"\x01\0\0\x84",
    ],
    seeds: || vec![description()],
};

/// A typedef and a structure with a bit field, as the kernel would describe them.
fn description() -> Vec<u8> {
    let texts = b"\0btf_trace_sys_exit\0linux_binprm\0secureexec\0";
    let types: [u32; 9] = [
        1,
        8 << 24,
        0,
        20,
        1 << 31 | 4 << 24 | 1,
        8,
        33,
        0,
        1 << 24 | 2,
    ];
    let length = 4 * types.len() as u32;
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    for word in [24, 0, length, length, texts.len() as u32] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(types.iter().flat_map(|word| word.to_le_bytes()));
    bytes.extend(texts);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_input_holds_what_is_looked_for() {
        assert_eq!(tracepoint(&description()), Some((Some(1), Some(2))));
    }
}
