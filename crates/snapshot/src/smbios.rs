//! Parser for the firmware's SMBIOS tables (DMTF DSP0134): memory arrays (type 16) and memory
//! devices (type 17). Pure functions over untrusted bytes.
//!
//! A structure consists of a type byte, a length byte, a handle, formatted bytes, and
//! NUL-terminated strings up to an empty one. Numbers are little-endian; the formatted bytes refer
//! to a string by its index, from 1.

use crate::dimms::{Dimm, MemoryModules};

const MEMORY_ARRAY: u8 = 16;
const MEMORY_DEVICE: u8 = 17;
const END: u8 = 127;
/// Maximum number of structures that are read.
const STRUCTURES_MAX: usize = 16_384;
/// Length of a memory device structure in the oldest version of the standard.
const DEVICE_BYTES_MIN: usize = 0x15;
const TEXT_BYTES_MAX: usize = 128;

/// One structure of the tables.
struct SmbiosStructure<'a> {
    kind: u8,
    formatted: &'a [u8],
    strings: &'a [u8],
}

/// Parses the memory modules from the tables. Malformed structures are skipped.
pub(crate) fn parse_memory_modules(tables: &[u8]) -> MemoryModules {
    let mut modules = MemoryModules {
        from: Some("smbios"),
        ..MemoryModules::default()
    };
    let mut rest = tables;
    for _ in 0..STRUCTURES_MAX {
        let Some((structure, after)) = next_structure(rest) else {
            break;
        };
        rest = after;
        match structure.kind {
            END => break,
            MEMORY_ARRAY => add_array(&structure, &mut modules),
            MEMORY_DEVICE => modules.dimms.extend(dimm(&structure)),
            _ => {}
        }
    }
    modules
}

fn next_structure(bytes: &[u8]) -> Option<(SmbiosStructure<'_>, &[u8])> {
    let (kind, length) = (*bytes.first()?, usize::from(*bytes.get(1)?));
    if length < 4 {
        return None;
    }
    let (formatted, rest) = bytes.split_at_checked(length)?;
    let end = rest.windows(2).position(|pair| pair == [0, 0])?;
    let (strings, after) = (&rest[..end], &rest[end + 2..]);
    Some((
        SmbiosStructure {
            kind,
            formatted,
            strings,
        },
        after,
    ))
}

impl SmbiosStructure<'_> {
    fn byte(&self, offset: usize) -> Option<u8> {
        self.formatted.get(offset).copied()
    }

    fn word(&self, offset: usize) -> Option<u16> {
        let bytes = self.formatted.get(offset..offset + 2)?;
        Some(u16::from_le_bytes(bytes.try_into().ok()?))
    }

    fn double_word(&self, offset: usize) -> Option<u32> {
        let bytes = self.formatted.get(offset..offset + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// Returns the string whose index is at this offset; `None` for the placeholders that firmware
    /// writes for unknown values.
    fn text(&self, offset: usize) -> Option<String> {
        let index = usize::from(self.byte(offset)?);
        let bytes = self.strings.split(|byte| *byte == 0);
        let bytes = bytes.take(index).nth(index.checked_sub(1)?)?;
        let bytes = &bytes[..bytes.len().min(TEXT_BYTES_MAX)];
        let text = String::from_utf8_lossy(bytes);
        let text: String = text.chars().filter(|c| !c.is_control()).collect();
        let text = text.trim();
        let placeholders = ["", "Unknown", "Not Specified", "NO DIMM", "None", "N/A"];
        (!placeholders.contains(&text)).then(|| text.to_owned())
    }
}

fn add_array(array: &SmbiosStructure<'_>, modules: &mut MemoryModules) {
    // System memory only: there are also arrays for video memory and caches.
    if array.byte(0x05) != Some(0x03) {
        return;
    }
    let ecc = match array.byte(0x06) {
        Some(0x03) => "none",
        Some(0x04) => "parity",
        Some(0x05) => "single-bit",
        Some(0x06) => "multi-bit",
        Some(0x07) => "CRC",
        _ => "",
    };
    if !ecc.is_empty() {
        modules.ecc = Some(ecc.to_owned());
    }
    let slots = array.word(0x0d).map(u64::from).unwrap_or(0);
    modules.slots = Some(modules.slots.unwrap_or(0).saturating_add(slots));
}

fn dimm(device: &SmbiosStructure<'_>) -> Option<Dimm> {
    if device.formatted.len() < DEVICE_BYTES_MIN {
        return None;
    }
    let bytes = match device.word(0x0c)? {
        // Empty slot, or unknown size.
        0 | 0xffff => return None,
        0x7fff => u64::from(device.double_word(0x1c)? & 0x7fff_ffff) << 20,
        size if size & 0x8000 != 0 => u64::from(size & 0x7fff) << 10,
        size => u64::from(size) << 20,
    };
    // 0xffff: the speed does not fit into 16 bits and is in the extended field.
    let speed = |offset: usize, extended: usize| match device.word(offset)? {
        0 => None,
        0xffff => device
            .double_word(extended)
            .map(u64::from)
            .filter(|speed| *speed > 0),
        speed => Some(u64::from(speed)),
    };
    let ranks = device.byte(0x1b).map(|byte| byte & 0x0f);
    Some(Dimm {
        locator: device.text(0x10),
        bank: device.text(0x11),
        bytes,
        kind: device.byte(0x12).and_then(memory_type).map(str::to_owned),
        manufacturer: device.text(0x17),
        part: device.text(0x1a),
        speed_mts: speed(0x15, 0x54),
        configured_mts: speed(0x20, 0x58),
        ranks: ranks.filter(|ranks| *ranks > 0).map(u64::from),
    })
}

fn memory_type(byte: u8) -> Option<&'static str> {
    Some(match byte {
        0x07 => "RAM",
        0x0f => "SDRAM",
        0x12 => "DDR",
        0x13 => "DDR2",
        0x18 => "DDR3",
        0x1a => "DDR4",
        0x1b => "LPDDR",
        0x1c => "LPDDR2",
        0x1d => "LPDDR3",
        0x1e => "LPDDR4",
        0x1f => "non-volatile",
        0x20 => "HBM",
        0x21 => "HBM2",
        0x22 => "DDR5",
        0x23 => "LPDDR5",
        0x24 => "HBM3",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn structure(kind: u8, formatted: &[u8], strings: &[&str]) -> Vec<u8> {
        let mut bytes = vec![kind, (formatted.len() + 4) as u8, 0x11, 0x00];
        bytes.extend_from_slice(formatted);
        for text in strings {
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        }
        if strings.is_empty() {
            bytes.push(0);
        }
        bytes.push(0);
        bytes
    }

    fn device(size: u16, extended: u32, speed: u16, strings: &[&str]) -> Vec<u8> {
        let mut formatted = vec![0; 0x5c - 4];
        let mut put = |offset: usize, bytes: &[u8]| {
            formatted[offset - 4..offset - 4 + bytes.len()].copy_from_slice(bytes);
        };
        put(0x0c, &size.to_le_bytes());
        put(0x10, &[1, 2, 0x22]);
        put(0x15, &speed.to_le_bytes());
        put(0x17, &[3, 4, 0, 5, 2]);
        put(0x1c, &extended.to_le_bytes());
        put(0x20, &4800_u16.to_le_bytes());
        put(0x54, &8800_u32.to_le_bytes());
        structure(MEMORY_DEVICE, &formatted, strings)
    }

    fn tables() -> Vec<u8> {
        let mut array = vec![0; 0x0f - 4];
        (array[1], array[2], array[9]) = (3, 6, 4);
        let strings = [
            "DIMM_A1",
            "BANK 0",
            "Samsung",
            "PLANTED-SERIAL",
            "M321R8GA0BB0",
        ];
        [
            structure(0, &[0; 20], &["a vendor", "a version"]),
            structure(MEMORY_ARRAY, &array, &[]),
            device(0x7fff, 64 << 10, 0xffff, &strings),
            device(0, 0, 0, &["DIMM_A2"]),
            device(512, 0, 5600, &["DIMM_B1", "Not Specified", "NO DIMM"]),
            device(0x8000 | 640, 0, 0, &[]),
            structure(END, &[], &[]),
            device(512, 0, 0, &["after the end"]),
        ]
        .concat()
    }

    #[test]
    fn modules_are_parsed_with_their_sizes() {
        let found = parse_memory_modules(&tables());
        assert_eq!(
            (found.slots, found.ecc.as_deref()),
            (Some(4), Some("multi-bit"))
        );
        let sizes: Vec<u64> = found.dimms.iter().map(|dimm| dimm.bytes).collect();
        assert_eq!(sizes, [64 << 30, 512 << 20, 640 << 10]);
        let first = &found.dimms[0];
        assert_eq!(first.locator.as_deref(), Some("DIMM_A1"));
        assert_eq!(first.part.as_deref(), Some("M321R8GA0BB0"));
        assert_eq!(first.kind.as_deref(), Some("DDR5"));
        assert_eq!(
            (first.speed_mts, first.configured_mts),
            (Some(8800), Some(4800))
        );
        assert_eq!(first.ranks, Some(2));
        assert_eq!(
            (&found.dimms[1].bank, &found.dimms[1].manufacturer),
            (&None, &None)
        );
        assert_eq!(found.dimms[1].speed_mts, Some(5600));
        assert!(!format!("{found:?}").contains("PLANTED"));
    }

    #[test]
    fn tables_truncated_at_any_byte_give_the_complete_structures() {
        let tables = tables();
        for end in 0..tables.len() {
            assert!(parse_memory_modules(&tables[..end]).dimms.len() <= 3);
        }
        let short = structure(MEMORY_DEVICE, &[1; 12], &[]);
        assert_eq!(
            parse_memory_modules(&short).dimms,
            [],
            "too short for a module"
        );
        assert_eq!(
            parse_memory_modules(&[17, 3, 0, 0, 0, 0]).dimms,
            [],
            "shorter than its own header"
        );
    }
}
