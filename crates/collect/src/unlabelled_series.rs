//! A single series without labels.

use std::sync::Arc;

use pegel_metric::{Family, SampleGroup, SeriesError, Slot};

use crate::CollectError;
use crate::proc_file::ProcFile;
use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_u64};

/// A series without labels, declared with its first value.
#[derive(Debug)]
pub(crate) struct UnlabelledSeries {
    family: Arc<Family>,
    slot: Option<Slot>,
}

impl UnlabelledSeries {
    pub(crate) fn new(family: &Family) -> UnlabelledSeries {
        UnlabelledSeries {
            family: Arc::new(family.clone()),
            slot: None,
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, out: &mut SampleGroup, value: f64) -> Result<(), SeriesError> {
        let slot = match self.slot {
            Some(slot) => slot,
            None => *self.slot.insert(out.declare(&self.family, &[])?),
        };
        out.set(slot, value);
        Ok(())
    }

    /// Sets it to the first number in a file of `/proc/sys`.
    pub(crate) fn set_from_file(
        &mut self,
        file: &mut ProcFile,
        out: &mut SampleGroup,
    ) -> Result<(), CollectError> {
        let done = first_number(file.read()?).and_then(|value| Ok(self.set(out, value as f64)?));
        done.map_err(|fault| fault.at_path(file.path()))
    }
}

fn first_number(text: &[u8]) -> Result<u64, ProcParseError> {
    let line = non_empty_lines(text)?
        .next()
        .map_or(&[][..], |(_, line)| line);
    let malformed = ProcParseError::Malformed {
        line: 1,
        what: "not a number",
    };
    Words(line).next().and_then(parse_u64).ok_or(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::update_fails;

    #[test]
    fn the_first_number_counts() {
        assert_eq!(first_number(b"674\t0\t2465780\n"), Ok(674));
        update_fails(
            |text| first_number(text).map(|_| ()),
            &[
                ("", 0, "the file is empty"),
                ("674", 1, "the last line is cut off"),
                ("x\n", 1, "not a number"),
                ("\n", 1, "not a number"),
            ],
        );
    }
}
