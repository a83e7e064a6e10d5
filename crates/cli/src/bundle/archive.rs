//! Writes a gzipped tar archive (POSIX ustar). The same files give the same bytes: entries are
//! sorted, and owner and times are fixed.

use std::io::Write;

use flate2::{Compression, GzBuilder};

const RECORD_BYTES: usize = 512;
/// 2000-01-01: `tar` warns about files from 1970.
const MODIFIED: u64 = 946_684_800;

/// A file or directory of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ArchiveEntry {
    /// At most 100 bytes; the name of a directory ends with a slash.
    pub name: String,
    pub mode: u32,
    pub content: Vec<u8>,
}

/// Returns the archive of some entries.
pub(super) fn gzipped_tar(mut entries: Vec<ArchiveEntry>) -> std::io::Result<Vec<u8>> {
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    // The header of gzip has neither a time nor a name.
    let mut out = GzBuilder::new().write(Vec::new(), Compression::best());
    for entry in &entries {
        out.write_all(&header(entry)?)?;
        out.write_all(&entry.content)?;
        out.write_all(&vec![0; padding(entry.content.len())])?;
    }
    out.write_all(&[0; 2 * RECORD_BYTES])?;
    out.finish()
}

fn padding(length: usize) -> usize {
    length.next_multiple_of(RECORD_BYTES) - length
}

fn header(entry: &ArchiveEntry) -> std::io::Result<[u8; RECORD_BYTES]> {
    let mut header = [0; RECORD_BYTES];
    let name = entry.name.as_bytes();
    let size = format!("{:011o}", entry.content.len());
    if name.len() > 100 || size.len() > 11 {
        let text = format!("{}: too large for an archive", entry.name);
        return Err(std::io::Error::other(text));
    }
    let is_directory = entry.name.ends_with('/');
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, name);
    put(100, format!("{:07o}", entry.mode).as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, size.as_bytes());
    put(136, format!("{MODIFIED:011o}").as_bytes());
    // The checksum is computed with blanks in its place.
    put(148, b"        ");
    put(156, if is_directory { b"5" } else { b"0" });
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, content: &[u8]) -> ArchiveEntry {
        ArchiveEntry {
            name: name.to_owned(),
            mode: 0o644,
            content: content.to_vec(),
        }
    }

    #[test]
    fn the_same_files_in_any_order_give_the_same_bytes() {
        let files = vec![entry("b", b"2"), entry("a/", b""), entry("a/c", &[7; 513])];
        let mut reversed = files.clone();
        reversed.reverse();
        let archive = gzipped_tar(files).expect("small");
        assert_eq!(archive, gzipped_tar(reversed).expect("small"));
        assert!(gzipped_tar(vec![entry(&"x".repeat(101), b"")]).is_err());
    }
}
