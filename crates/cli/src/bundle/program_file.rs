//! The program in a bundle.

use std::path::Path;

use anyhow::{Context, bail};
use pegel_plain_file::read_plain;

/// The most bytes of the program.
const PROGRAM_BYTES_MAX: u64 = 512 << 20;
/// The kind of an entry in the table of segments that names the dynamic linker.
const SEGMENT_INTERPRETER: u32 = 3;

/// Reads the program. It must be for Linux.
pub(super) fn read_program(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = read_plain(path, PROGRAM_BYTES_MAX + 1)
        .with_context(|| format!("cannot read {}", path.display()))?;
    if bytes.len() as u64 > PROGRAM_BYTES_MAX {
        bail!("{}: the program exceeds 512 MiB", path.display());
    }
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        bail!(
            "{}: not a program for 64-bit Linux; pass the binary of pegel",
            path.display()
        );
    }
    Ok(bytes)
}

/// Whether the program requires a dynamic linker, and with it the C library of the node.
pub(super) fn is_dynamic(program: &[u8]) -> bool {
    segment_kinds(program).any(|kind| kind == SEGMENT_INTERPRETER)
}

/// Returns the kinds of the segments of a little-endian 64-bit program.
fn segment_kinds(program: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let number = |at: usize, length: usize| -> u64 {
        let end = at.saturating_add(length);
        let bytes = program.get(at..end).unwrap_or_default();
        let digits = bytes.iter().rev();
        digits.fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count).map(move |index| {
        let at = table.saturating_add(index * size);
        number(usize::try_from(at).unwrap_or(usize::MAX), 4) as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_an_interpreter_is_dynamic() {
        let this = read_program(&std::env::current_exe().expect("a path")).expect("a program");
        assert_eq!(is_dynamic(&this), !cfg!(target_feature = "crt-static"));
        assert!(!is_dynamic(b"\x7fELF\x02\x01"));
        assert!(read_program(Path::new("/etc/passwd")).is_err());
    }
}
