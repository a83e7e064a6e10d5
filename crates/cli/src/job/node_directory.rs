//! The directory of an agent of a job, on storage of its node, private to the user.
//!
//! ```text
//! /tmp/pegel-job-UID-ID/        the job on this machine
//!   primary/push.sock           the socket that programs of the job use
//!   NUMBER/                     the agent of a node: store, token, key, certificate, lock
//! /dev/shm/pegel-job-UID-ID/    the lanes of programs
//! ```
//!
//! Usually a machine has one agent. If a machine stands for several nodes, the first agent there
//! serves the programs. Directories of killed agents are removed by the next job.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use pegel_job::JobFile;
use pegel_lane::private_directory::not_private_reason;

/// A directory younger than this may belong to an agent that is starting.
const STALE_AFTER: Duration = Duration::from_secs(60);
/// The most directories that are checked for killed agents.
const CHECKED_MAX: usize = 1000;

/// Returns the first part of the names of all directories of jobs of this user.
fn name_prefix() -> String {
    let uid = rustix::process::geteuid().as_raw();
    format!("pegel-job-{uid}-")
}

/// Returns the directory of a job below `base`.
pub(super) fn job_directory(base: &Path, id: &str) -> PathBuf {
    base.join(format!("{}{id}", name_prefix()))
}

/// Returns the socket that programs of a job use.
pub(super) fn programs_socket(job_dir: &Path) -> PathBuf {
    job_dir.join("primary/push.sock")
}

/// The directory of one agent, locked. Removed when dropped.
#[derive(Debug)]
pub(super) struct NodeDirectory {
    job_dir: PathBuf,
    own: PathBuf,
    lanes: PathBuf,
    is_primary: bool,
    is_kept: bool,
    _lock: File,
    /// Keeps the lanes from being taken for those of a killed agent; `--dir` of another job may be
    /// another one.
    _lanes_lock: File,
}

impl NodeDirectory {
    /// Creates the directory of an agent; `None` if another agent of this node has it.
    pub(super) fn claim(
        job: &JobFile,
        is_head: bool,
        node: &str,
    ) -> anyhow::Result<Option<NodeDirectory>> {
        let job_dir = job.dir.clone();
        if let Some(base) = job_dir.parent() {
            remove_stale(base);
        }
        if let Some(base) = job.lanes.parent() {
            remove_stale_lanes(base);
        }
        ensure_private(&job_dir)?;
        let name = match (is_head, job.number_of(node)) {
            (true, _) => "head".to_owned(),
            (false, Some(number)) => number.to_string(),
            // A node that is not in the list; `pegel job` reports it.
            (false, None) => format!("other-{}", std::process::id()),
        };
        let own = job_dir.join(name);
        match DirBuilder::new().mode(0o700).create(&own) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            created => created.with_context(|| format!("cannot create {}", own.display()))?,
        }
        let lock = new_file(&own.join("lock"))?;
        lock.try_lock()
            .with_context(|| format!("cannot lock {}", own.display()))?;
        let primary = job_dir.join("primary");
        let is_primary = DirBuilder::new().mode(0o700).create(&primary).is_ok();
        let lanes = match is_primary {
            true => job.lanes.clone(),
            false => own.join("lanes"),
        };
        ensure_private(&lanes)?;
        let lanes_lock = File::open(&lanes)
            .and_then(|dir| Ok(dir.try_lock().map(|()| dir)?))
            .with_context(|| format!("cannot lock {}", lanes.display()))?;
        Ok(Some(NodeDirectory {
            job_dir,
            own,
            lanes,
            is_primary,
            is_kept: job.keeps_dir,
            _lock: lock,
            _lanes_lock: lanes_lock,
        }))
    }

    pub(super) fn store(&self) -> PathBuf {
        self.own.join("store")
    }

    pub(super) fn socket(&self) -> PathBuf {
        match self.is_primary {
            true => programs_socket(&self.job_dir),
            false => self.own.join("push.sock"),
        }
    }

    pub(super) fn lanes(&self) -> &Path {
        &self.lanes
    }

    pub(super) fn token(&self) -> PathBuf {
        self.own.join("token")
    }

    pub(super) fn certificate(&self) -> PathBuf {
        self.own.join("cert.pem")
    }

    pub(super) fn key(&self) -> PathBuf {
        self.own.join("key.pem")
    }

    /// Writes token, certificate and key, with mode 0600.
    pub(super) fn write_credentials(&self, job: &JobFile) -> anyhow::Result<()> {
        for (path, text) in [
            (self.token(), &job.token.0),
            (self.certificate(), &job.certificate),
            (self.key(), &job.key.0),
        ] {
            let written = new_file(&path)?.write_all(text.as_bytes());
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

impl Drop for NodeDirectory {
    /// Removes everything of this agent. Best effort: the next job removes what is left.
    fn drop(&mut self) {
        if self.is_kept {
            // Without the lock, the next job does not take it for that of a killed agent.
            let lock = self.own.join("lock");
            for path in [self.token(), self.key(), self.certificate(), lock] {
                let _ = fs::remove_file(path);
            }
        } else {
            let _ = fs::remove_dir_all(&self.own);
        }
        if self.is_primary {
            let _ = fs::remove_dir_all(&self.lanes);
            let _ = fs::remove_dir_all(self.job_dir.join("primary"));
        }
        // Fails while other agents use it.
        let _ = fs::remove_dir(&self.job_dir);
    }
}

fn new_file(path: &Path) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(path);
    opened.with_context(|| format!("cannot create {}", path.display()))
}

/// Creates a directory for this user alone, or checks that an existing one is.
fn ensure_private(dir: &Path) -> anyhow::Result<()> {
    let cannot = || {
        format!(
            "cannot create {}; choose another place with --dir",
            dir.display()
        )
    };
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(cannot);
        }
        _ => {}
    }
    let found = fs::symlink_metadata(dir).with_context(cannot)?;
    let uid = rustix::process::geteuid().as_raw();
    match not_private_reason(&found, uid) {
        None => Ok(()),
        Some(reason) => bail!("{} {reason}", dir.display()),
    }
}

/// Removes directories of jobs of this user whose agents were all killed.
fn remove_stale(base: &Path) {
    for dir in job_directories(base) {
        let agents = fs::read_dir(&dir).into_iter().flatten().flatten();
        let locks = agents.filter_map(|entry| File::open(entry.path().join("lock")).ok());
        let locks: Vec<File> = locks.collect();
        let _ = match locks.is_empty() {
            // Empty, or kept with its samples.
            true => fs::remove_dir(&dir),
            false if locks.iter().all(|lock| lock.try_lock().is_ok()) => fs::remove_dir_all(&dir),
            false => Ok(()),
        };
    }
}

/// Removes directories of lanes whose agents were killed.
fn remove_stale_lanes(base: &Path) {
    for lanes in job_directories(base) {
        let Ok(lock) = File::open(&lanes) else {
            continue;
        };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(&lanes);
        }
    }
}

/// Returns the directories of jobs of this user that are not new.
fn job_directories(base: &Path) -> Vec<PathBuf> {
    let (prefix, uid) = (name_prefix(), rustix::process::geteuid().as_raw());
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    let is_old = |path: &PathBuf| {
        let Ok(found) = fs::symlink_metadata(path) else {
            return false;
        };
        let age = found
            .modified()
            .ok()
            .and_then(|at| SystemTime::now().duration_since(at).ok());
        found.is_dir() && found.uid() == uid && age.is_some_and(|age| age > STALE_AFTER)
    };
    let named = named.take(CHECKED_MAX).map(|entry| entry.path());
    named.filter(is_old).collect()
}

#[cfg(test)]
mod tests {
    use pegel_testkit::{TempDir, set_mode};

    use super::*;

    fn job(base: &TempDir) -> JobFile {
        JobFile {
            dir: job_directory(base.path(), "x"),
            lanes: base.join("lanes"),
            nodes: vec!["a".to_owned(), "b".to_owned()],
            head: "h".to_owned(),
            ..JobFile::default()
        }
    }

    #[test]
    fn the_first_agent_of_a_machine_serves_programs_and_all_leave_nothing() {
        let base = TempDir::new();
        let job = job(&base);
        let claim = |is_head, node| NodeDirectory::claim(&job, is_head, node).expect("claimed");
        let head = claim(true, "h").expect("the first");
        let a = claim(false, "a").expect("another node");
        assert!(
            claim(false, "a").is_none(),
            "a second agent of the same node"
        );
        assert_eq!(head.socket(), programs_socket(&job.dir));
        assert_ne!(a.socket(), head.socket());
        assert_ne!(a.lanes(), head.lanes());
        a.write_credentials(&job).expect("written");
        assert_eq!(fs::metadata(a.key()).expect("there").mode() & 0o7777, 0o600);
        drop(head);
        assert!(job.dir.exists(), "still used");
        drop(a);
        assert!(!job.dir.exists() && !job.lanes.exists());
    }

    #[test]
    fn a_directory_of_others_is_not_used() {
        let base = TempDir::new();
        let job = job(&base);
        fs::create_dir(&job.dir).expect("made");
        set_mode(&job.dir, 0o777);
        let error = NodeDirectory::claim(&job, true, "h").expect_err("refused");
        assert!(
            error.to_string().contains(&job.dir.display().to_string()),
            "{error:#}"
        );
    }

    #[test]
    fn directories_of_killed_agents_are_removed_and_used_ones_are_not() {
        let base = TempDir::new();
        let old = |path: &Path| {
            let at = SystemTime::now() - Duration::from_secs(3600);
            File::open(path)
                .and_then(|dir| dir.set_modified(at))
                .expect("set");
        };
        let used = JobFile {
            dir: job_directory(base.path(), "used"),
            ..job(&base)
        };
        let agent = NodeDirectory::claim(&used, true, "h")
            .expect("claimed")
            .expect("first");
        let killed = job_directory(base.path(), "killed");
        fs::create_dir_all(killed.join("0")).expect("made");
        fs::write(killed.join("0/lock"), "").expect("written");
        let new = job_directory(base.path(), "new");
        fs::create_dir(&new).expect("made");
        let keeping = JobFile {
            dir: job_directory(base.path(), "kept"),
            lanes: base.join("lanes-of-kept"),
            keeps_dir: true,
            ..job(&base)
        };
        let kept = NodeDirectory::claim(&keeping, true, "h")
            .expect("claimed")
            .expect("first");
        kept.write_credentials(&keeping).expect("written");
        fs::create_dir(kept.store()).expect("made");
        let (store, token) = (kept.store(), kept.token());
        drop(kept);
        assert!(store.exists() && !token.exists());
        for dir in [&used.dir, &killed, &keeping.dir] {
            old(dir);
        }
        remove_stale(base.path());
        assert!(used.dir.exists() && new.exists() && store.exists() && !killed.exists());
        // Lanes of a job whose directory is elsewhere.
        let memory = TempDir::new();
        let elsewhere = JobFile {
            dir: job_directory(base.path(), "elsewhere"),
            lanes: job_directory(memory.path(), "elsewhere"),
            ..job(&base)
        };
        let other = NodeDirectory::claim(&elsewhere, true, "h")
            .expect("claimed")
            .expect("first");
        let left = job_directory(memory.path(), "left");
        fs::create_dir(&left).expect("made");
        for dir in [&elsewhere.lanes, &left] {
            old(dir);
        }
        remove_stale_lanes(memory.path());
        assert!(elsewhere.lanes.exists() && !left.exists());
        drop(other);
        drop(agent);
    }
}
