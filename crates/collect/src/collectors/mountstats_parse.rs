//! Parser of `/proc/self/mountstats`, for the collector `mountstats`.

use crate::proc_parse::{
    NumberedLines, ProcParseError, Words, non_empty_lines, parse_u64, parse_u64s,
};

const BYTES: usize = 8;
pub(super) const OPERATION: usize = 8;

/// The statistics of one NFS mount.
#[derive(Debug)]
pub(super) struct NfsMountStats<'a> {
    pub(super) export: &'a [u8],
    pub(super) protocol: &'a [u8],
    pub(super) address: &'a [u8],
    pub(super) age: u64,
    pub(super) bytes: [u64; BYTES],
    /// The lines after `per-op statistics`, up to the next mount.
    operations: Option<NumberedLines<'a>>,
}

/// Calls `put` for each NFS mount.
pub(super) fn parse<'a>(
    text: &'a [u8],
    mut put: impl FnMut(&NfsMountStats<'a>) -> Result<(), ProcParseError>,
) -> Result<(), ProcParseError> {
    let mut lines = non_empty_lines(text)?;
    let mut current: Option<NfsMountStats<'a>> = None;
    while let Some((number, line)) = lines.next() {
        if line.starts_with(b"device ") {
            if let Some(mount) = current.take() {
                put(&mount)?;
            }
            current = nfs_export(line).map(NfsMountStats::new);
        } else if let Some(mount) = &mut current {
            let malformed = ProcParseError::at_line(number, "expected the statistics of a mount");
            mount.parse_line(line, &lines).ok_or(malformed)?;
        }
    }
    current.map_or(Ok(()), |mount| put(&mount))
}

/// Returns the export of a line such as `device server:/export mounted on /mnt with fstype nfs4
/// statvers=1.1`, if it is an NFS mount.
fn nfs_export(line: &[u8]) -> Option<&[u8]> {
    let mut words = Words(line);
    let is_nfs = words
        .clone()
        .skip_while(|word| *word != b"fstype")
        .nth(1)
        .is_some_and(|kind| kind == b"nfs" || kind == b"nfs4");
    if is_nfs { words.nth(1) } else { None }
}

impl<'a> NfsMountStats<'a> {
    fn new(export: &'a [u8]) -> NfsMountStats<'a> {
        NfsMountStats {
            export,
            protocol: &[],
            address: &[],
            age: 0,
            bytes: [0; BYTES],
            operations: None,
        }
    }

    /// Parses a line of the mount; `rest` are the lines after it.
    fn parse_line(&mut self, line: &'a [u8], rest: &NumberedLines<'a>) -> Option<()> {
        let mut words = Words(line);
        match words.next() {
            Some(b"opts:") => self.parse_options(words.next()?),
            Some(b"age:") => self.age = parse_u64(words.next()?)?,
            Some(b"bytes:") => {
                let count = parse_u64s(words, &mut self.bytes)?;
                return (count == BYTES).then_some(());
            }
            Some(b"per-op") => self.operations = Some(rest.clone()),
            _ => {}
        }
        Some(())
    }

    fn parse_options(&mut self, options: &'a [u8]) {
        let mut address: &[u8] = &[];
        for option in options.split(|&byte| byte == b',') {
            if let Some(protocol) = option.strip_prefix(b"proto=") {
                self.protocol = protocol;
            } else if let Some(of_mount) = option.strip_prefix(b"mountaddr=") {
                self.address = of_mount;
            } else if let Some(of_server) = option.strip_prefix(b"addr=") {
                address = of_server;
            }
        }
        // NFS version 4 has no separate mount protocol and no `mountaddr`.
        if self.address.is_empty() {
            self.address = address;
        }
    }

    /// Iterates over the operations and their values.
    pub(super) fn operations(
        &self,
    ) -> impl Iterator<Item = Result<(&'a [u8], [u64; OPERATION]), ProcParseError>> {
        let lines = self.operations.clone().into_iter().flatten();
        let lines = lines.take_while(|(_, line)| !line.starts_with(b"device "));
        let lines = lines.filter(|(_, line)| Words(line).next().is_some());
        lines.map(|(number, line)| {
            operation(line).ok_or(ProcParseError::at_line(
                number,
                "expected the statistics of an operation",
            ))
        })
    }
}

/// Parses `READ: 1298 1298 0 207680 1210292152 6 79386 79407`; newer kernels append a number of
/// errors.
fn operation(line: &[u8]) -> Option<(&[u8], [u64; OPERATION])> {
    let mut words = Words(line);
    let name = words.next()?.strip_suffix(b":")?;
    let mut numbers = [0; OPERATION];
    (parse_u64s(words, &mut numbers)? == OPERATION).then_some((name, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::update_fails;

    #[test]
    fn the_mount_address_takes_precedence() {
        let text = b"device s:/a mounted on /a with fstype nfs statvers=1.1\n\
                     \topts:\tro,mountaddr=192.0.2.7,proto=udp,addr=192.0.2.8\n";
        let mut found = Vec::new();
        parse(text, |mount| {
            found.push((mount.address, mount.protocol));
            Ok(())
        })
        .expect("valid");
        assert_eq!(found, [(&b"192.0.2.7"[..], &b"udp"[..])]);
    }

    #[test]
    fn malformed_input_is_reported_with_its_line() {
        let with = |line: &str| format!("device s:/a mounted on /a with fstype nfs\n{line}\n");
        let what = "expected the statistics of a mount";
        update_fails(
            |text| {
                parse(text, |mount| {
                    mount.operations().try_for_each(|one| one.map(|_| ()))
                })
            },
            &[
                ("", 0, "empty file"),
                (&with("\tage:"), 2, what),
                (&with("\tage: x"), 2, what),
                (&with("\tbytes: 1 2 3"), 2, what),
                (
                    &with("\tper-op statistics\n\tREAD: 1"),
                    3,
                    "expected the statistics of an operation",
                ),
            ],
        );
    }
}
