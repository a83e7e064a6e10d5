//! The file that tells the agents of a job what they need: their tree, their settings and their
//! secrets. It is passed through a pipe or a file with mode 0600, never on a command line, and is
//! removed when the nodes are up.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The largest job file: 20,000 names of nodes.
pub const JOB_FILE_BYTES_MAX: u64 = 8 << 20;

#[derive(Debug, thiserror::Error)]
pub enum JobFileError {
    #[error(
        "cannot read the job file {path}: {source}; the directory must be shared by all nodes: \
         choose one with --shared"
    )]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("other users can read the job file {0}; its mode must be 0600")]
    Exposed(PathBuf),
    #[error("the job file {0} belongs to another user")]
    Foreign(PathBuf),
    #[error("cannot write the job file {path}: {source}; choose another directory with --shared")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("malformed job file")]
    Content,
    #[error("the job was started by another version of pegel, {0}; install the same on all nodes")]
    Version(String),
}

/// A text that is not printed.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// What the agents of a job need.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct JobFile {
    pub version: String,
    pub id: String,
    /// The directory of an agent, on storage of its node; the same path on all nodes.
    pub dir: PathBuf,
    /// The directory of the lanes of programs, in memory of the node.
    pub lanes: PathBuf,
    /// The name of the head, and whether it is one of the nodes.
    pub head: String,
    /// The nodes besides the head; their numbers are their places in the tree.
    pub nodes: Vec<String>,
    pub fan_out: usize,
    /// Where the head accepts children; the head itself gets port 0. Empty without other nodes.
    pub head_address: String,
    /// The port of nodes that have nodes below them.
    pub parent_port: u16,
    pub certificate: String,
    pub key: SecretText,
    pub fingerprint: String,
    pub token: SecretText,
    /// The configuration file of the user.
    pub config: Option<PathBuf>,
    /// Keys of the configuration that the command line sets: `level`, `rate`.
    pub settings: Vec<(String, String)>,
    /// Where the agents copy their stores at the end.
    pub out: Option<PathBuf>,
    /// Serve copies of the stores in this directory, and sample nothing.
    pub view: Option<PathBuf>,
    /// The database files to serve instead, one for each node; empty if stores are served.
    pub databases: Vec<PathBuf>,
    /// Keep the directories of the agents at the end.
    pub keeps_dir: bool,
    /// Where the job file is; the head removes it at its end, in case `pegel job` was killed.
    pub path: PathBuf,
    /// Seconds without a connection to any parent after which an agent ends.
    pub lost_after: f64,
}

impl JobFile {
    /// Writes a new file with mode 0600 in a private directory.
    pub fn write(&self, path: &Path) -> Result<(), JobFileError> {
        let failed = |source| JobFileError::Write {
            path: path.to_owned(),
            source,
        };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(path).map_err(failed)?;
        file.write_all(self.to_line().as_bytes()).map_err(failed)
    }

    /// Returns the file as one line of JSON.
    pub fn to_line(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }

    pub fn read(path: &Path) -> Result<JobFile, JobFileError> {
        let failed = |source| JobFileError::Read {
            path: path.to_owned(),
            source,
        };
        let found = std::fs::metadata(path).map_err(failed)?;
        if found.mode() & 0o077 != 0 {
            return Err(JobFileError::Exposed(path.to_owned()));
        }
        // Root's files can have another owner on file systems that do not trust root.
        let user = rustix::process::geteuid();
        if found.uid() != user.as_raw() && !user.is_root() {
            return Err(JobFileError::Foreign(path.to_owned()));
        }
        let bytes = pegel_plain_file::read_plain(path, JOB_FILE_BYTES_MAX).map_err(failed)?;
        JobFile::parse(&bytes)
    }

    /// Parses the JSON. No error quotes it: it contains secrets.
    pub fn parse(bytes: &[u8]) -> Result<JobFile, JobFileError> {
        let job: JobFile = serde_json::from_slice(bytes).map_err(|_| JobFileError::Content)?;
        match job.version == env!("CARGO_PKG_VERSION") {
            true => Ok(job),
            false => Err(JobFileError::Version(job.version)),
        }
    }

    /// Returns the level of the agents, as a text.
    pub fn level(&self) -> Option<&str> {
        let found = self.settings.iter().find(|(key, _)| key == "level");
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the number of a node in the tree.
    pub fn number_of(&self, node: &str) -> Option<usize> {
        self.nodes.iter().position(|known| known == node)
    }
}

#[cfg(test)]
mod tests {
    use pegel_testkit::{TempDir, set_mode};

    use super::*;

    #[test]
    fn a_job_file_is_private_and_shows_no_secret() {
        let dir = TempDir::new();
        let path = dir.join("job");
        let job = JobFile {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            id: "7".to_owned(),
            token: SecretText("planted".to_owned()),
            key: SecretText("planted".to_owned()),
            ..JobFile::default()
        };
        assert!(!format!("{job:?}").contains("planted"));
        job.write(&path).expect("written");
        let mode = std::fs::metadata(&path).expect("there").mode() & 0o7777;
        assert_eq!(mode, 0o600);
        assert_eq!(JobFile::read(&path).expect("read").token.0, "planted");
        assert!(
            matches!(job.write(&path), Err(JobFileError::Write { .. })),
            "exists"
        );
        set_mode(&path, 0o640);
        assert!(matches!(
            JobFile::read(&path),
            Err(JobFileError::Exposed(_))
        ));
        let error = JobFile::read(&dir.join("no"))
            .expect_err("missing")
            .to_string();
        assert!(error.contains("--shared"), "{error}");
    }

    #[test]
    fn a_file_of_another_version_is_refused() {
        let text = JobFile {
            version: "0.0.0".to_owned(),
            ..JobFile::default()
        };
        let error = JobFile::parse(text.to_line().as_bytes()).expect_err("refused");
        assert!(error.to_string().contains("0.0.0"), "{error}");
        assert!(matches!(
            JobFile::parse(b"{\"token\":\"planted\""),
            Err(JobFileError::Content)
        ));
    }
}
