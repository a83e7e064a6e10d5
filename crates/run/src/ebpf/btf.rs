//! Parses BTF, the kernel's description of its types, to find tracepoints and structure members.
//! The input is not trusted: malformed data yields None.

use std::io::{self, Read};

use rustix::mm::{MapFlags, ProtFlags};

const MAGIC: u16 = 0xeb9f;
const STRUCT: u32 = 4;
const TYPEDEF: u32 = 8;

/// The kernel's BTF file, some megabytes: mapped where the kernel permits that, otherwise read.
#[derive(Debug)]
pub(super) enum BtfFile {
    Mapped(BtfMapping),
    Read(Vec<u8>),
}

#[derive(Debug)]
pub(super) struct BtfMapping {
    start: *mut std::ffi::c_void,
    length: usize,
}

impl Drop for BtfMapping {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly the mapping created in `open`; `&mut self` proves that no borrow
        // is left.
        let _ = unsafe { rustix::mm::munmap(self.start, self.length) };
    }
}

impl BtfFile {
    pub(super) fn open(path: &str) -> io::Result<BtfFile> {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len() as usize;
        let (null, flags) = (std::ptr::null_mut(), MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address chosen by the kernel.
        let mapped = unsafe { rustix::mm::mmap(null, length, ProtFlags::READ, flags, &file, 0) };
        if let Ok(start) = mapped {
            return Ok(BtfFile::Mapped(BtfMapping { start, length }));
        }
        let mut bytes = Vec::with_capacity(length);
        file.read_to_end(&mut bytes)?;
        Ok(BtfFile::Read(bytes))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            // SAFETY: the mapping lives as long as `self`, and the file never changes.
            BtfFile::Mapped(map) => unsafe {
                std::slice::from_raw_parts(map.start.cast::<u8>().cast_const(), map.length)
            },
            BtfFile::Read(bytes) => bytes,
        }
    }
}

/// Parsed BTF data: the sections of types and of strings.
#[derive(Debug)]
pub(super) struct Btf<'a> {
    types: &'a [u8],
    texts: &'a [u8],
}

struct BtfType<'a> {
    id: u32,
    name: u32,
    kind: u32,
    /// Whether the offsets of members also encode bit-field sizes.
    has_bit_fields: bool,
    /// The data after the first three words.
    body: &'a [u8],
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl<'a> Btf<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Btf<'a>> {
        let magic = u16::from_ne_bytes(*bytes.first_chunk()?);
        if magic != MAGIC {
            return None;
        }
        let word = |at| Some(u32_at(bytes, at)? as usize);
        let body = bytes.get(word(4)?..)?;
        let part = |from: usize, length: usize| body.get(from..from.checked_add(length)?);
        Some(Btf {
            types: part(word(8)?, word(12)?)?,
            texts: part(word(16)?, word(20)?)?,
        })
    }

    fn is_named(&self, name: u32, wanted: &[u8]) -> bool {
        let text = self.texts.get(name as usize..).unwrap_or_default();
        text.strip_prefix(wanted)
            .is_some_and(|rest| rest.first() == Some(&0))
    }

    fn types(&self) -> impl Iterator<Item = BtfType<'a>> {
        let (mut rest, mut id) = (self.types, 0);
        std::iter::from_fn(move || {
            let (name, info) = (u32_at(rest, 0)?, u32_at(rest, 4)?);
            let (kind, members) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let behind = rest.get(12..)?;
            let (body, next) = behind.split_at_checked(trailing_bytes(kind, members)?)?;
            rest = next;
            id += 1;
            Some(BtfType {
                id,
                name,
                kind,
                has_bit_fields: info >> 31 == 1,
                body,
            })
        })
    }

    /// Returns the IDs of the typedefs with these names, which identify tracepoints.
    pub(super) fn typedefs(&self, names: &[&str]) -> Vec<Option<u32>> {
        let mut found = vec![None; names.len()];
        for entry in self.types().filter(|entry| entry.kind == TYPEDEF) {
            for (name, found) in names.iter().zip(&mut found) {
                if self.is_named(entry.name, name.as_bytes()) {
                    *found = Some(entry.id);
                }
            }
        }
        found
    }

    /// Returns the bit offset of a structure's member.
    pub(super) fn member_bit_offset(&self, structure: &str, member: &str) -> Option<u32> {
        let is_wanted = |entry: &BtfType<'_>| {
            entry.kind == STRUCT && self.is_named(entry.name, structure.as_bytes())
        };
        self.types().filter(is_wanted).find_map(|entry| {
            let mut members = entry.body.chunks_exact(12);
            let found = members.find(|words| {
                u32_at(words, 0).is_some_and(|name| self.is_named(name, member.as_bytes()))
            })?;
            let offset = u32_at(found, 8)?;
            Some(if entry.has_bit_fields {
                offset & 0xff_ffff
            } else {
                offset
            })
        })
    }
}

/// Returns the number of bytes after the first three words of a type; None for a kind newer than
/// this list.
fn trailing_bytes(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // Integers, variables, declaration tags.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Structures, unions, 64-bit enumerations.
        4 | 5 | 19 => members * 12,
        // Enumerations, function prototypes.
        6 | 13 => members * 8,
        // Data sections.
        15 => members * 12,
        // Pointers, forward declarations, typedefs, qualifiers, functions, floats, type tags.
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

/// Returns BTF data for the task storage map: its key is a 32-bit integer (type 1), its value a
/// structure of 64-bit integers (type 3).
pub(super) fn task_value_btf(words: u32) -> Vec<u8> {
    let texts = b"\0key\0word\0task\0";
    let mut types: Vec<u32> = vec![1, 1 << 24, 4, 1 << 24 | 32, 5, 1 << 24, 8, 64];
    types.extend([10, STRUCT << 24 | words, 8 * words]);
    for word in 0..words {
        types.extend([5, 2, 64 * word]);
    }
    let length = (types.len() * 4) as u32;
    let mut bytes = Vec::new();
    bytes.extend(MAGIC.to_ne_bytes());
    bytes.extend([1, 0]);
    for word in [24, 0, length, length, texts.len() as u32] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(types.iter().flat_map(|word| word.to_ne_bytes()));
    bytes.extend(texts);
    bytes
}

#[cfg(test)]
mod tests {
    use pegel_testkit::need_hardware;

    use super::*;

    #[test]
    fn what_we_write_can_be_read() {
        let bytes = task_value_btf(3);
        let btf = Btf::parse(&bytes).expect("well formed");
        assert_eq!(btf.types().count(), 3);
        assert_eq!(btf.typedefs(&["task"]), [None]);
        assert_eq!(btf.member_bit_offset("task", "word"), Some(0));
        assert_eq!(btf.member_bit_offset("task", "key"), None);
        assert_eq!(btf.member_bit_offset("word", "word"), None);
    }

    #[test]
    fn what_is_cut_or_foreign_is_no_description() {
        let bytes = task_value_btf(3);
        for length in 0..bytes.len() {
            if let Some(btf) = Btf::parse(&bytes[..length]) {
                let _ = btf.typedefs(&["task"]);
                let _ = btf.member_bit_offset("task", "key");
            }
        }
        assert!(Btf::parse(b"ELF").is_none());
    }

    #[test]
    fn the_kernel_describes_its_tracepoints() {
        let file = BtfFile::open("/sys/kernel/btf/vmlinux").ok();
        if need_hardware(file.is_some(), "kernel that describes its types (BTF)").is_none() {
            return;
        }
        let file = file.expect("it was opened");
        let read = std::fs::read("/sys/kernel/btf/vmlinux").expect("it can be read as well");
        assert!(file.bytes() == read);
        let btf = Btf::parse(file.bytes()).expect("well formed");
        let names = ["btf_trace_sys_enter", "btf_trace_no_such_thing"];
        let found = btf.typedefs(&names);
        assert!(found[0].is_some() && found[1].is_none(), "{found:?}");
        let fields = ["secureexec", "point_of_no_return", "no_such_thing"];
        let bits = fields.map(|field| btf.member_bit_offset("linux_binprm", field));
        assert!(bits[0].is_some() && bits[2].is_none(), "{bits:?}");
        assert_ne!(bits[0], bits[1]);
    }
}
