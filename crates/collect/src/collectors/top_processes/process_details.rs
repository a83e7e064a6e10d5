//! The properties of a process that seldom change: its users, control group, job and command line.
//! Read when a process is first seen, when its program changes, and then at growing intervals.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use pegel_machine::{cgroup_lines, read_small, redact_command_line};
use pegel_metric::escape_unprintable;
use pegel_metric::slurm::job_id_in;

use super::user_names::UserNames;
use crate::collectors::cgroup_jobs::{JobName, job_name};
use crate::proc_parse::{Words, parse_u64};

/// Bytes of a command line that are read; the rest is left out.
const COMMAND_BYTES: usize = 4096;
/// Longer than any `status` and `cgroup` file of a process.
const FILE_BYTES: usize = 8192;
/// Bytes of an environment in which the job ID is searched.
const ENVIRONMENT_BYTES: usize = 128 * 1024;
/// Environments that are searched for the ID of one job: an agent that may not read them gives up.
const JOB_TRIES_MAX: u8 = 18;

#[derive(Debug, Clone)]
pub(super) struct ProcessDetails {
    /// The effective user.
    pub uid: Option<u32>,
    pub user: Arc<str>,
    /// The user if all user IDs of the process are the same.
    pub owner: Option<u32>,
    pub cgroup: Arc<str>,
    pub job: Option<Arc<str>>,
    pub command: Option<Arc<str>>,
}

impl Default for ProcessDetails {
    fn default() -> ProcessDetails {
        ProcessDetails {
            uid: None,
            user: "".into(),
            owner: None,
            cgroup: "".into(),
            job: None,
            command: None,
        }
    }
}

/// Reads details, and shares the texts that many processes have in common.
#[derive(Debug)]
pub(super) struct DetailReader {
    users: UserNames,
    /// By path of the group.
    groups: HashMap<Box<str>, KnownGroup>,
    buffer: Vec<u8>,
}

#[derive(Debug, Clone)]
struct KnownGroup {
    path: Arc<str>,
    job: Option<Arc<str>>,
    /// How many more environments may be searched for the ID of the job.
    tries_left: u8,
}

impl DetailReader {
    pub(super) fn new(users: UserNames) -> DetailReader {
        DetailReader {
            users,
            groups: HashMap::new(),
            buffer: vec![0; FILE_BYTES],
        }
    }

    /// Forgets names and groups that may have changed.
    pub(super) fn forget(&mut self) {
        self.users.clear();
        self.groups
            .retain(|_, group| Arc::strong_count(&group.path) > 1);
    }

    /// Reads the details of the process in `folder`. `may_hang`: the process waits for a device, so
    /// reading its memory, where its command line is, could wait too; `last` is kept then.
    pub(super) fn read(
        &mut self,
        folder: &OwnedFd,
        may_hang: bool,
        last: &ProcessDetails,
    ) -> ProcessDetails {
        // The owner is read after the command line: if the process gives up privileges in between,
        // the command line is one that its new owner can read anyway.
        let command = if may_hang { None } else { self.command(folder) };
        let length = read_small(folder, "status", &mut self.buffer).unwrap_or(0);
        let users = user_ids(&self.buffer[..length]);
        let mut details = ProcessDetails {
            uid: users.map(|users| users[1]),
            owner: users.and_then(|users| users.iter().all(|u| *u == users[0]).then_some(users[0])),
            command,
            ..ProcessDetails::default()
        };
        if let Some(uid) = details.uid {
            details.user = self.users.name(uid);
        }
        if may_hang && details.owner == last.owner {
            details.command = last.command.clone();
        }
        if let Some(group) = self.group(folder) {
            details.cgroup = group.path;
            details.job = group.job;
        }
        details
    }

    fn command(&mut self, folder: &OwnedFd) -> Option<Arc<str>> {
        let buffer = &mut self.buffer[..COMMAND_BYTES];
        let length = read_small(folder, "cmdline", buffer).ok()?;
        let command = redact_command_line(&buffer[..length], length == buffer.len())?;
        Some(escape_unprintable(&command).into())
    }

    fn group(&mut self, folder: &OwnedFd) -> Option<KnownGroup> {
        let length = read_small(folder, "cgroup", &mut self.buffer).ok()?;
        let text = String::from_utf8_lossy(&self.buffer[..length]);
        let path = main_group(&text)?;
        let group = self
            .groups
            .entry(path.into())
            .or_insert_with(|| KnownGroup {
                path: escape_unprintable(path).into(),
                job: None,
                tries_left: JOB_TRIES_MAX,
            });
        if group.tries_left > 0 {
            let (job, is_final) = match job_name(path) {
                None => (None, true),
                Some(JobName::Id(id)) => (Some(id.into()), true),
                Some(JobName::Sluid(sluid)) => {
                    let mut environment = vec![0; ENVIRONMENT_BYTES];
                    let length = read_small(folder, "environ", &mut environment).unwrap_or(0);
                    let id = job_id_in(&environment[..length], sluid);
                    (Some(id.unwrap_or(sluid).into()), id.is_some())
                }
            };
            group.job = job;
            group.tries_left = if is_final { 0 } else { group.tries_left - 1 };
        }
        Some(group.clone())
    }
}

/// Returns the real, effective, saved and file-system user IDs in `/proc/PID/status`.
fn user_ids(status: &[u8]) -> Option<[u32; 4]> {
    let mut lines = status.split(|&byte| byte == b'\n');
    let line = lines.find_map(|line| line.strip_prefix(b"Uid:"))?;
    let mut words = Words(line);
    let mut users = [0; 4];
    for user in &mut users {
        *user = parse_u64(words.next()?)?.try_into().ok()?;
    }
    Some(users)
}

/// Returns the group of a process in `/proc/PID/cgroup`: that of version 2, or that of the memory
/// controller where version 2 is not used.
fn main_group(text: &str) -> Option<&str> {
    let mut chosen = None;
    for (controllers, path) in cgroup_lines(text) {
        let rank = match controllers {
            "" if path != "/" => 3,
            _ if controllers.split(',').any(|name| name == "memory") => 2,
            "" => 1,
            _ => 0,
        };
        if chosen.is_none_or(|(best, _)| rank > best) {
            chosen = Some((rank, path));
        }
    }
    chosen.map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_user_ids_are_read() {
        let status = b"Name:\tUid:\nUid:\t1000\t0\t0\t1000\nGid:\t1\t1\t1\t1\n";
        assert_eq!(user_ids(status), Some([1000, 0, 0, 1000]));
        for bad in [
            "",
            "Uid:\t1\t2\t3\n",
            "Uid:\t1\t2\t3\tx\n",
            "Uid:\t-1\t2\t3\t4",
        ] {
            assert_eq!(user_ids(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn the_group_is_that_of_version_2_where_it_is_used() {
        let hybrid = "4:memory:/slurm/uid_7/job_9\n3:cpu:/\n0::/\n";
        assert_eq!(main_group(hybrid), Some("/slurm/uid_7/job_9"));
        let unified = "1:name=x:/a\n0::/system.slice/b.service\n";
        assert_eq!(main_group(unified), Some("/system.slice/b.service"));
        assert_eq!(main_group("0::/\n"), Some("/"));
        assert_eq!(main_group("rubbish"), None);
    }
}
