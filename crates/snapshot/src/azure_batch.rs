//! Parser for the log of Azure Batch's node agent. The format is undocumented: known values are
//! extracted, other lines are counted.
//!
//! A line has columns separated by `■`; the third is the time. Two kinds of lines are useful, and
//! both may contain tokens, so only these four values are ever taken from them:
//! `…"PoolName":"p",…"TVMName":"tvmps_…",…"TVMAllocationTime":"133…"…` and `…'TVMBootTime':
//! '133…'…`. Times are ticks of 100 ns since 1601.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::timestamp::Timestamp;
use pegel_machine::MachineFiles;

/// Maximum bytes read. The values are at the beginning of the log, where the node started.
const LOG_BYTES_MAX: u64 = 8 << 20;
const NAME_CHARS_MAX: usize = 128;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AzureBatch {
    pub log: PathBuf,
    pub pool: Option<String>,
    pub vm: Option<String>,
    /// Time at which the service allocated the machine to the pool.
    pub allocated: Option<Timestamp>,
    /// Boot time that the service recorded.
    pub booted: Option<Timestamp>,
    /// Time of the first line that has one.
    pub log_begins: Option<String>,
    pub lines: u64,
    /// Lines without a time in the third column.
    pub unknown_lines: u64,
}

pub(crate) fn read(machine: &MachineFiles, log: &Path) -> Option<AzureBatch> {
    let bytes = machine.bytes(log, LOG_BYTES_MAX)?;
    Some(AzureBatch {
        log: log.to_owned(),
        ..parse(&bytes)
    })
}

/// Parses a log up to the line that completes the values.
pub(crate) fn parse(bytes: &[u8]) -> AzureBatch {
    let mut found = AzureBatch::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        if line.is_empty() {
            continue;
        }
        found.lines += 1;
        let line = String::from_utf8_lossy(line);
        match log_time(&line) {
            None => found.unknown_lines += 1,
            Some(time) if found.log_begins.is_none() => found.log_begins = Some(time),
            Some(_) => {}
        }
        parse_line(&line, &mut found);
        if found.is_complete() {
            break;
        }
    }
    found
}

impl AzureBatch {
    fn is_complete(&self) -> bool {
        let times = self.allocated.is_some() && self.booted.is_some();
        times && self.pool.is_some() && self.vm.is_some() && self.log_begins.is_some()
    }
}

/// Returns the third column if it is a time such as `20210902T081715.123Z`.
fn log_time(line: &str) -> Option<String> {
    let time = line.split('■').nth(2)?.trim();
    let is_time = time.len() == 20
        && time.ends_with('Z')
        && time.char_indices().all(|(index, c)| match index {
            8 => c == 'T',
            15 => c == '.',
            19 => c == 'Z',
            _ => c.is_ascii_digit(),
        });
    is_time.then(|| time.to_owned())
}

fn parse_line(line: &str, found: &mut AzureBatch) {
    if line.contains("TVMAllocationTime") && line.contains("PoolName") {
        found.allocated = found.allocated.or_else(|| ticks(line, "TVMAllocationTime"));
        found.vm = found.vm.take().or_else(|| name(line, "TVMName"));
        found.pool = found.pool.take().or_else(|| name(line, "PoolName"));
    }
    if line.contains("TVMBootTime") {
        found.booted = found.booted.or_else(|| ticks(line, "TVMBootTime"));
    }
}

fn ticks(line: &str, key: &str) -> Option<Timestamp> {
    Timestamp::from_windows_ticks(value(line, key)?.parse().ok()?)
}

/// Returns the value of a key if it consists of name characters, which excludes URLs and query
/// strings.
fn name(line: &str, key: &str) -> Option<String> {
    let text = value(line, key)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.$".contains(c);
    let is_valid = !text.is_empty() && text.len() <= NAME_CHARS_MAX && text.chars().all(is_name);
    is_valid.then(|| text.to_owned())
}

/// Returns the quoted value after `"key":` or `'key':`.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    for quote in ['"', '\''] {
        let Some(start) = line.find(&format!("{quote}{key}{quote}")) else {
            continue;
        };
        let rest = line[start + key.len() + 2..]
            .trim_start()
            .strip_prefix(':')?
            .trim_start();
        let (value, _) = rest.strip_prefix(quote)?.split_once(quote)?;
        return Some(value);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: &str) -> String {
        format!("1■I■20240101T000000.123Z■x■y■agent■node_agent.py■main■0■0■0■0■{message}\n")
    }

    #[test]
    fn only_the_four_values_are_extracted() {
        let log = [
            "Traceback (most recent call last):\n".to_owned(),
            line("bootinfo>> instance metadata: {\"customData\":\"PLANTED\"}"),
            line(
                "{\"PoolName\":\"pool-1\",\"TVMName\":\"tvmps_0a1b_d\",\
                  \"TVMAllocationTime\":\"133485408001234567\",\"sas\":\"sig=PLANTED\"}",
            ),
            line("entity: {'TVMBootTime': '133485408601234567', 'token': 'PLANTED'}"),
            line("never reached"),
        ];
        let found = parse(log.concat().as_bytes());
        assert_eq!(found.pool.as_deref(), Some("pool-1"));
        assert_eq!(found.vm.as_deref(), Some("tvmps_0a1b_d"));
        assert_eq!(found.allocated, Some(Timestamp(1_704_067_200_123)));
        assert_eq!(found.booted, Some(Timestamp(1_704_067_260_123)));
        assert_eq!(found.log_begins.as_deref(), Some("20240101T000000.123Z"));
        assert_eq!((found.lines, found.unknown_lines), (4, 1));
        assert!(!format!("{found:?}").contains("PLANTED"));
    }

    #[test]
    fn lines_of_an_unknown_format_are_only_counted() {
        let log = "PoolName TVMAllocationTime\n{\"PoolName\":\"a b?sig=PLANTED\",\"TVMAllocationTime\":\"x\"}\n\
                   {\"PoolName\":\"cut, TVMAllocationTime\n'TVMBootTime': 'none'\n■■■\n";
        let found = parse(log.as_bytes());
        assert_eq!((found.lines, found.unknown_lines), (5, 5));
        assert_eq!(
            (found.pool, found.allocated, found.booted),
            (None, None, None)
        );
    }
}
