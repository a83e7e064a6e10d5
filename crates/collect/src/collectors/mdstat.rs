//! Parser of `/proc/mdstat`, for the collector `md`.

use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_u64};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MdArrayState {
    Active,
    Inactive,
    Recovering,
    Resync,
    Check,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MdArray<'a> {
    pub(super) name: &'a [u8],
    pub(super) state: MdArrayState,
    pub(super) blocks: u64,
    pub(super) synced: u64,
    pub(super) required: u64,
    pub(super) active: u64,
    pub(super) failed: u64,
    pub(super) spare: u64,
}

/// Calls `put` for each array. An array is a line `md0 : active raid1 sda1[0] …`, a line with its
/// size, and optional further lines up to an empty one.
pub(super) fn parse<'a>(
    text: &'a [u8],
    mut put: impl FnMut(MdArray<'a>) -> Result<(), ProcParseError>,
) -> Result<(), ProcParseError> {
    let mut current: Option<MdArray<'a>> = None;
    for (number, line) in non_empty_lines(text)? {
        let malformed = ProcParseError::at_line(number, "expected the state of an array");
        let mut words = Words(line);
        let is_continued = matches!(line.first(), Some(b' ' | b'\t'));
        if let (Some(array), true) = (current.as_mut(), is_continued) {
            array.parse_detail_line(line).ok_or(malformed)?;
            continue;
        }
        if let Some(array) = current.take() {
            put(array)?;
        }
        let [Some(name), Some(b":")] = [words.next(), words.next()] else {
            continue;
        };
        // In `unused devices:` the colon is not a separate word.
        if name != b"Personalities" {
            current = Some(MdArray::parse_first_line(name, words).ok_or(malformed)?);
        }
    }
    current.map_or(Ok(()), put)
}

impl<'a> MdArray<'a> {
    fn parse_first_line(name: &'a [u8], mut words: Words<'_>) -> Option<MdArray<'a>> {
        let state = match words.next()? {
            b"active" => MdArrayState::Active,
            b"inactive" => MdArrayState::Inactive,
            _ => return None,
        };
        let (mut failed, mut spare, mut members) = (0, 0, 0);
        for word in words.filter(|word| word.contains(&b'[')) {
            members += 1;
            failed += u64::from(word.ends_with(b"(F)"));
            spare += u64::from(word.ends_with(b"(S)"));
        }
        // Arrays without redundancy do not report the number of active disks; arrays that are not
        // active have none.
        let active = if state == MdArrayState::Active {
            members
        } else {
            0
        };
        Some(MdArray {
            name,
            state,
            blocks: 0,
            synced: 0,
            required: active,
            active,
            failed,
            spare,
        })
    }

    /// Parses a further line: the size of the array, or the progress of a rebuild.
    fn parse_detail_line(&mut self, line: &[u8]) -> Option<()> {
        let mut words = Words(line);
        let first = words.next()?;
        if words.next() == Some(b"blocks") {
            self.blocks = parse_u64(first)?;
            self.synced = self.blocks;
            if let Some((required, active)) = words.find_map(|word| counts(word, b'[', b']')) {
                (self.required, self.active) = (required, active);
            }
            return Some(());
        }
        let state = Words(line).find_map(|word| {
            let starts = |name: &[u8]| word.starts_with(name);
            match word {
                _ if starts(b"recovery") || starts(b"reshape") => Some(MdArrayState::Recovering),
                _ if starts(b"resync") => Some(MdArrayState::Resync),
                _ if starts(b"check") => Some(MdArrayState::Check),
                _ => None,
            }
        });
        if let Some(state) = state {
            self.state = state;
            // `resync=DELAYED` and `resync=PENDING` have not started.
            let done = Words(line).find_map(|word| counts(word, b'(', b')'));
            self.synced = done.map_or(0, |(done, _)| done);
        }
        Some(())
    }
}

/// Parses `[2/1]` or `(16775552/195310144)`.
fn counts(word: &[u8], before: u8, after: u8) -> Option<(u64, u64)> {
    let inside = word.strip_prefix(&[before])?.strip_suffix(&[after])?;
    let slash = inside.iter().position(|&byte| byte == b'/')?;
    Some((
        parse_u64(&inside[..slash])?,
        parse_u64(&inside[slash + 1..])?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::update_fails;

    fn only(text: &str) -> MdArray<'_> {
        let mut found = Vec::new();
        parse(text.as_bytes(), |array| {
            found.push(array);
            Ok(())
        })
        .expect("valid");
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    #[test]
    fn a_rebuild_has_its_progress() {
        let array = only(
            "Personalities : [raid1]\nmd6 : active raid1 sdb2[2](F) sdc[1](S) sda2[0]\n  \
             1000 blocks [2/1] [U_]\n  [=>...]  recovery =  8.5% (85/1000) finish=17.0min\n\n\
             unused devices: <none>\n",
        );
        assert_eq!(array.state, MdArrayState::Recovering);
        assert_eq!((array.blocks, array.synced), (1000, 85));
        assert_eq!((array.required, array.active), (2, 1));
        assert_eq!((array.failed, array.spare), (1, 1));
    }

    #[test]
    fn a_delayed_rebuild_has_no_progress() {
        let array =
            only("md9 : active raid1 sda[0]\n    16 blocks [2/1] [U_]\n    resync=DELAYED\n");
        assert_eq!((array.state, array.synced), (MdArrayState::Resync, 0));
    }

    #[test]
    fn striped_arrays_require_all_disks() {
        let array =
            only("md0 : active raid0 sdk1[0] sdl1[1]\n    16 blocks super 1.2 512k chunks\n");
        assert_eq!((array.required, array.active, array.synced), (2, 2, 16));
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let what = "expected the state of an array";
        update_fails(
            |text| parse(text, |_| Ok(())),
            &[
                ("", 0, "empty file"),
                ("md0 : active raid1 sda[0]\n  x blocks [1/1] [U]\n", 2, what),
                ("md0 : broken raid1 sda[0]\n", 1, what),
                ("md0 : active raid1", 1, "the last line is cut off"),
            ],
        );
    }
}
