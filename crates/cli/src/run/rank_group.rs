//! The local ranks of one MPI job, which print one summary together.
//!
//! The helper of each rank joins the group before its program starts: it creates a file in the
//! group's directory and locks it as long as it lives. At the end it writes its report there. The
//! one that finds no other rank running is the last, prints the summary of all reports and removes
//! them. A lock on the whole group makes sure that this is exactly one. The locks belong to the
//! kernel: a helper that is killed leaves a file that is not locked and has no report.
//!
//! The directory belongs to the launcher (its process ID and start time). A rank may run several
//! programs one after the other; the n-th program of each rank is in the n-th group.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use super::local_rank::{LauncherProcess, LocalRank};
use super::report::RunReport;

/// How long after its own start a rank waits for others that have not started yet.
const START_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a rank waits for others that read or change the state of the group.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The largest report that is read.
const REPORT_BYTES_MAX: u64 = 16 << 20;

/// The membership of one rank.
#[derive(Debug)]
pub(super) struct RankMember {
    directory: PathBuf,
    /// Locked while any state of the group is read or changed. Holds the number of programs that
    /// each rank has run.
    group: File,
    /// Locked as long as this process lives.
    own: File,
    own_name: String,
    sequence: u64,
    expected: Option<usize>,
    joined: Instant,
}

/// The reports of a complete group.
#[derive(Debug)]
pub(super) struct FinishedGroup {
    pub reports: Vec<RunReport>,
    /// The number of ranks that the launcher started on this node, if known.
    pub expected: Option<usize>,
}

impl RankMember {
    /// Joins the group of this rank's program, below `base`.
    pub(super) fn join(base: &Path, rank: &LocalRank) -> io::Result<RankMember> {
        remove_stale_groups(base);
        let LauncherProcess { pid, start } = rank.launcher;
        let directory = base.join(format!("ranks-{pid}-{start}"));
        match fs::create_dir(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let open = |name: &str| {
            let mut options = File::options();
            let path = directory.join(name);
            options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
        };
        let group = open("group")?;
        let lock = GroupLock::acquire(&group)?;
        let sequence = next_sequence(&group, &rank.rank)?;
        let own_name = format!("{sequence}.{}", rank.rank);
        let own = open(&own_name)?;
        rustix::fs::flock(&own, FlockOperation::NonBlockingLockExclusive)?;
        drop(lock);
        Ok(RankMember {
            directory,
            group,
            own,
            own_name,
            sequence,
            expected: rank.local_size,
            joined: Instant::now(),
        })
    }

    /// Adds the report of this rank. Returns all reports if this rank is the last one.
    pub(super) fn finish(mut self, report: &RunReport) -> io::Result<Option<FinishedGroup>> {
        let mut is_written = false;
        loop {
            let lock = GroupLock::acquire(&self.group)?;
            if !is_written {
                self.own
                    .write_all(report.to_json().to_string().as_bytes())?;
                is_written = true;
            }
            let Some(members) = self.members()? else {
                return Ok(None);
            };
            let is_complete = self
                .expected
                .is_none_or(|expected| members.len() >= expected);
            if is_complete || self.joined.elapsed() >= START_TIMEOUT {
                return Ok(Some(self.take_reports(&members)));
            }
            drop(lock);
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns the names of the group's members; None if another of them is still running, or if
    /// another has printed the summary.
    fn members(&self) -> io::Result<Option<Vec<String>>> {
        let prefix = format!("{}.", self.sequence);
        let mut members = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !name.starts_with(&prefix) {
                continue;
            }
            if name != self.own_name && is_running(&self.directory.join(&name)) {
                return Ok(None);
            }
            members.push(name);
        }
        let is_included = members.contains(&self.own_name);
        Ok(is_included.then_some(members))
    }

    /// Reads and removes the reports of all members.
    fn take_reports(&self, members: &[String]) -> FinishedGroup {
        let mut reports = Vec::new();
        for name in members {
            let path = self.directory.join(name);
            // Empty if the rank's helper was killed.
            reports.extend(read_report(&path));
            let _ = fs::remove_file(path);
        }
        let number = |report: &RunReport| -> Option<u64> { report.rank.as_ref()?.parse().ok() };
        reports.sort_by_key(number);
        // A helper that was killed took part as well.
        let expected = self
            .expected
            .map_or(members.len(), |size| size.max(members.len()));
        FinishedGroup {
            reports,
            expected: Some(expected),
        }
    }
}

/// The lock on a group; dropping it releases the lock.
struct GroupLock<'a>(&'a File);

impl GroupLock<'_> {
    /// Waits at most [`LOCK_TIMEOUT`]: a helper that was stopped while it held the lock must not
    /// keep the programs of other ranks from starting or ending.
    fn acquire(file: &File) -> io::Result<GroupLock<'_>> {
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(GroupLock(file)),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(POLL_INTERVAL);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for GroupLock<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

/// Returns the number of programs that this rank has run before, and adds this one. The file has
/// one line for each rank: its number and the number of its programs.
fn next_sequence(mut group: &File, rank: &str) -> io::Result<u64> {
    let mut text = String::new();
    group.read_to_string(&mut text)?;
    let mut lines: Vec<(&str, u64)> = text
        .lines()
        .filter_map(|line| {
            let (rank, count) = line.split_once(' ')?;
            Some((rank, count.parse().ok()?))
        })
        .collect();
    let sequence = match lines.iter_mut().find(|(known, _)| *known == rank) {
        Some((_, count)) => {
            *count += 1;
            *count - 1
        }
        None => {
            lines.push((rank, 1));
            0
        }
    };
    let text: String = (lines.iter())
        .map(|(rank, count)| format!("{rank} {count}\n"))
        .collect();
    group.rewind()?;
    group.set_len(0)?;
    group.write_all(text.as_bytes())?;
    Ok(sequence)
}

/// Returns whether the process of a member's file holds its lock and has not written its report.
fn is_running(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    let is_locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err();
    is_locked && file.metadata().is_ok_and(|found| found.len() == 0)
}

fn read_report(path: &Path) -> Option<RunReport> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(REPORT_BYTES_MAX).read_to_string(&mut text).ok()?;
    RunReport::from_json(&serde_json::from_str(&text).ok()?)
}

/// Removes the directories of launchers that have ended.
fn remove_stale_groups(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let launcher = name.to_str().and_then(|name| {
            let (pid, start) = name.strip_prefix("ranks-")?.split_once('-')?;
            let (pid, start) = (pid.parse().ok()?, start.parse().ok()?);
            Some(LauncherProcess { pid, start })
        });
        if launcher.is_some_and(|launcher| !launcher.is_running()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use pegel_testkit::TempDir;

    use super::super::report::tests::example;
    use super::*;

    fn rank(rank: &str, local_size: Option<usize>) -> LocalRank {
        let stat = fs::read_to_string("/proc/self/stat").expect("procfs");
        let start = stat.rsplit(')').next().expect("fields");
        let start = start.split_ascii_whitespace().nth(19).expect("a start");
        LocalRank {
            rank: rank.to_owned(),
            local_size,
            launcher: LauncherProcess {
                pid: std::process::id(),
                start: start.parse().expect("a number"),
            },
        }
    }

    #[test]
    fn a_lock_that_another_rank_keeps_is_given_up() {
        let dir = TempDir::new();
        let member = join(&dir, "0", Some(2));
        let held = GroupLock::acquire(&member.group).expect("free");
        let second = RankMember::join(dir.path(), &rank("1", Some(2)));
        let error = second.expect_err("the lock is held");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        join(&dir, "1", Some(2));
    }

    fn join(dir: &TempDir, number: &str, local_size: Option<usize>) -> RankMember {
        RankMember::join(dir.path(), &rank(number, local_size)).expect("a directory of our own")
    }

    fn ranks(finished: Option<FinishedGroup>) -> Option<Vec<String>> {
        let reports = finished?.reports.into_iter();
        Some(reports.filter_map(|report| report.rank).collect())
    }

    #[test]
    fn the_last_rank_has_all_reports_in_any_order_of_ends() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let dir = TempDir::new();
            let mut members: Vec<Option<RankMember>> = (0..3)
                .map(|number| Some(join(&dir, &number.to_string(), Some(3))))
                .collect();
            for (position, number) in order.into_iter().enumerate() {
                let member = members[number].take().expect("not finished");
                let finished = member.finish(&example(&number.to_string()));
                let finished = ranks(finished.expect("readable"));
                let expected = (position == 2).then(|| ["0", "1", "2"].map(str::to_owned).to_vec());
                assert_eq!(finished, expected, "{order:?}");
            }
        }
    }

    #[test]
    fn a_rank_whose_helper_was_killed_is_not_waited_for_but_counted() {
        let dir = TempDir::new();
        let (first, second) = (join(&dir, "0", Some(2)), join(&dir, "1", Some(2)));
        drop(second);
        let finished = first
            .finish(&example("0"))
            .expect("readable")
            .expect("the last");
        assert_eq!((finished.reports.len(), finished.expected), (1, Some(2)));
    }

    #[test]
    fn programs_of_the_same_ranks_are_groups_of_their_own() {
        let dir = TempDir::new();
        let slow = join(&dir, "0", None);
        let fast = join(&dir, "1", None);
        assert!(fast.finish(&example("1")).expect("readable").is_none());
        let second = join(&dir, "1", None);
        let finished = slow.finish(&example("0")).expect("readable");
        assert_eq!(ranks(finished).expect("the last").len(), 2);
        let finished = second.finish(&example("1")).expect("readable");
        assert_eq!(ranks(finished), Some(vec!["1".to_owned()]));
    }

    #[test]
    fn groups_of_ended_launchers_are_removed() {
        let dir = TempDir::new();
        let stale = dir.join("ranks-4194304-1");
        fs::create_dir(&stale).expect("a directory");
        fs::write(stale.join("0.0"), "{}").expect("written");
        let _member = join(&dir, "0", None);
        assert!(!stale.exists());
        assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 1);
    }
}
