//! The encoding of series in the log and in blocks: the family in full where it changes, then
//! labels.
//!
//! ```text
//! name · kind u8 · unit · level u4, input u4 · help · labels text      a family that differs from the one before
//! "" · labels text                                                    the same family again
//! ```
//!
//! The upper half of the level's byte holds the input: its index in [`Input::ALL`] plus one. Files
//! written before inputs were stored have 0 there; the two inputs with a help text of their own are
//! recognised by that text.

use std::collections::HashSet;
use std::sync::Arc;

use pegel_metric::{Family, Input, Level, MetricKind, Series};

use crate::codec::DecodeError;
use crate::codec::byte_reader::{ByteReader, put_str};

/// Encodes consecutive series; each name and family is written once per stretch.
#[derive(Debug, Default)]
pub(crate) struct SeriesEncoder<'a> {
    last: Option<&'a Series>,
}

impl<'a> SeriesEncoder<'a> {
    pub(crate) fn put(&mut self, series: &'a Series, out: &mut Vec<u8>) {
        let family = series.family();
        let is_same = |last: &Series| {
            let known = last.family();
            last.name() == series.name()
                && (Arc::ptr_eq(known, family) || has_same_metadata(known, family))
        };
        if self.last.is_some_and(is_same) {
            put_str(out, "");
        } else {
            put_str(out, series.name());
            out.push(family.kind as u8);
            put_str(out, &family.unit);
            out.push(pack_level(family));
            put_str(out, &family.help);
            self.last = Some(series);
        }
        put_str(out, series.labels_text());
    }
}

/// Returns the most bytes of a series, wherever it stands: four varints of 32 bits, kind, level,
/// and the texts of series and family.
pub(crate) fn encoded_bytes_max(series: &Series) -> usize {
    let family = series.family();
    22 + series.text().len() + family.unit.len() + family.help.len()
}

/// Returns whether two families have the same metadata, whatever their names.
fn has_same_metadata(one: &Family, other: &Family) -> bool {
    (one.kind, one.level, one.input, &one.unit, &one.help)
        == (
            other.kind,
            other.level,
            other.input,
            &other.unit,
            &other.help,
        )
}

/// Packs level and input into one byte.
fn pack_level(family: &Family) -> u8 {
    family.level.min(LEVEL_MASK) | (family.input as u8 + 1) << 4
}

/// Reads what [`pack_level`] wrote; `help` identifies the input of families from older files.
fn unpack_level(byte: u8, help: &str) -> Result<(Level, Input), DecodeError> {
    let input = match byte >> 4 {
        0 => input_of_help(help),
        code => *Input::ALL
            .get(usize::from(code) - 1)
            .ok_or(DecodeError("unknown input"))?,
    };
    Ok((byte & LEVEL_MASK, input))
}

const LEVEL_MASK: u8 = 0x0f;

/// Returns the input of a family that was written before inputs were stored.
pub(crate) fn input_of_help(help: &str) -> Input {
    match help {
        "Sent by a program to /api/metrics." => Input::Http,
        "Sent by a program with put." => Input::Put,
        _ => Input::Collect,
    }
}

/// Decodes consecutive series. Families with the same metadata are shared whatever their names:
/// thousands of names of programs share one.
#[derive(Debug, Default)]
pub(crate) struct SeriesDecoder {
    families: HashSet<Arc<Family>>,
    /// The name of the previous series.
    name: String,
    family: Option<Arc<Family>>,
}

impl SeriesDecoder {
    pub(crate) fn take(&mut self, reader: &mut ByteReader<'_>) -> Result<Arc<Series>, DecodeError> {
        let name = reader.str()?;
        if !name.is_empty() {
            let kind = *MetricKind::ALL
                .get(usize::from(reader.u8()?))
                .ok_or(DecodeError("unknown kind"))?;
            let unit = reader.str()?.to_owned().into();
            let level = reader.u8()?;
            let help = reader.str()?;
            let (level, input) = unpack_level(level, help)?;
            let family = Family {
                name: "".into(),
                kind,
                help: help.to_owned().into(),
                unit,
                level,
                input,
            };
            self.family = Some(self.intern(family));
            name.clone_into(&mut self.name);
        }
        let family = self
            .family
            .clone()
            .ok_or(DecodeError("series without a family"))?;
        let text = format!("{}{}", self.name, reader.str()?);
        let series =
            Series::parse(&text, |_| family).map_err(|_| DecodeError("malformed series"))?;
        Ok(Arc::new(series))
    }

    fn intern(&mut self, family: Family) -> Arc<Family> {
        if let Some(known) = self.families.get(&family) {
            return known.clone();
        }
        let family = Arc::new(family);
        self.families.insert(family.clone());
        family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_read_back_and_share_families_across_names() {
        static LOAD: Family = Family::new("load", MetricKind::Gauge, "jobs", 2, "Load.");
        let load = Arc::new(LOAD.clone());
        let counter = Family::new("", MetricKind::Counter, "", 1, "").of_input(Input::Statsd);
        let counter = Arc::new(counter);
        let written = [
            Series::named(counter.clone(), "a", &[]),
            Series::new(load.clone(), &[("cpu", "0")]),
            Series::new(load, &[("cpu", "1")]),
            Series::named(counter.clone(), "z", &[("k", "{")]),
            Series::named(counter, "zz", &[]),
        ]
        .map(|series| series.expect("valid"));
        let (mut out, mut writer) = (Vec::new(), SeriesEncoder::default());
        written
            .iter()
            .for_each(|series| writer.put(series, &mut out));

        let (mut bytes, mut reader) = (ByteReader::new(&out), SeriesDecoder::default());
        let read: Vec<Arc<Series>> = written
            .iter()
            .map(|_| reader.take(&mut bytes).expect("what was written"))
            .collect();
        for (read, written) in read.iter().zip(&written) {
            assert_eq!(read.text(), written.text());
            assert!(has_same_metadata(read.family(), written.family()), "{read}");
        }
        assert!(Arc::ptr_eq(read[0].family(), read[4].family()));
        assert!(Arc::ptr_eq(read[1].family(), read[2].family()));
    }

    #[test]
    fn families_written_before_inputs_were_stored_get_theirs_from_the_help_text() {
        for (help, input) in [
            ("Sent by a program to /api/metrics.", Input::Http),
            ("Sent by a program with put.", Input::Put),
            ("Load.", Input::Collect),
        ] {
            let mut old = Vec::new();
            put_str(&mut old, "name");
            old.push(MetricKind::Gauge as u8);
            put_str(&mut old, "");
            old.push(2);
            put_str(&mut old, help);
            put_str(&mut old, "");
            let read = SeriesDecoder::default().take(&mut ByteReader::new(&old));
            let family = read.expect("a series").family().clone();
            assert_eq!((family.level, family.input), (2, input));
        }
        assert!(unpack_level(0xf2, "").is_err(), "no such input");
    }
}
