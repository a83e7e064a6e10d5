//! The report of a finished run: what `--report` writes, and what the ranks of a job pass to the
//! one that prints their summary.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use pegel_run::{IoBytes, ProcessEnd, ProgramSummary};
use serde_json::{Value, json};

/// The counts of one system call or MPI function.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReportedCall {
    pub name: String,
    pub hits: u64,
    pub bytes: u64,
    pub seconds: f64,
    /// System calls only.
    pub errors: u64,
}

/// The MPI calls of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReportedMpi {
    pub processes: u64,
    pub unread_processes: u64,
    pub calls: Vec<ReportedCall>,
}

/// One finished run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RunReport {
    pub command: Vec<String>,
    pub node: String,
    pub job: Option<String>,
    pub rank: Option<String>,
    /// None: system calls were not counted.
    pub method: Option<String>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// Unix time.
    pub start: f64,
    pub seconds: f64,
    pub processes: Option<u64>,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub calls: Vec<ReportedCall>,
    pub user_seconds: f64,
    pub system_seconds: f64,
    pub peak_memory: Option<u64>,
    pub io: Option<IoBytes>,
    pub mpi: Option<ReportedMpi>,
}

impl RunReport {
    /// Describes a program that has just ended.
    pub(super) fn new(summary: &ProgramSummary, command: &[OsString]) -> RunReport {
        let (exit_code, signal) = match summary.end {
            ProcessEnd::Exited(code) => (Some(code), None),
            ProcessEnd::Killed(signal) => (None, Some(signal)),
            ProcessEnd::Released => (None, None),
        };
        let calls = summary.calls.iter().map(|call| ReportedCall {
            name: call.name.clone(),
            hits: call.count.hits,
            bytes: call.count.bytes,
            seconds: call.count.nanos as f64 / 1e9,
            errors: call.count.errors,
        });
        let mpi = summary.mpi.as_ref().map(|mpi| ReportedMpi {
            processes: mpi.processes,
            unread_processes: mpi.unread_lanes,
            calls: (mpi.calls.iter())
                .map(|call| ReportedCall {
                    name: call.name.clone(),
                    hits: call.hits,
                    bytes: call.bytes,
                    seconds: call.nanos as f64 / 1e9,
                    errors: 0,
                })
                .collect(),
        });
        let usage = summary.usage.unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = summary.elapsed.as_secs_f64();
        RunReport {
            command: (command.iter())
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            node: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            job: pegel_lane::job_id(),
            rank: pegel_lane::rank(),
            method: summary.method.map(|method| method.to_string()),
            exit_code,
            signal,
            start: now.map_or(0.0, |now| now.as_secs_f64()) - seconds,
            seconds,
            processes: summary.processes,
            bytes_read: summary.bytes_in(),
            bytes_written: summary.bytes_out(),
            calls: calls.collect(),
            user_seconds: usage.user.as_secs_f64(),
            system_seconds: usage.system.as_secs_f64(),
            peak_memory: usage.peak_memory,
            io: usage.io,
            mpi,
        }
    }

    pub(super) fn hits(&self) -> u64 {
        self.calls.iter().map(|call| call.hits).sum()
    }

    pub(super) fn errors(&self) -> u64 {
        self.calls.iter().map(|call| call.errors).sum()
    }

    pub(super) fn to_json(&self) -> Value {
        let calls: Vec<Value> = (self.calls.iter())
            .map(|call| {
                let mut value = call.to_json();
                value["errors"] = call.errors.into();
                value
            })
            .collect();
        let mpi = self.mpi.as_ref().map(|mpi| {
            let calls: Vec<Value> = mpi.calls.iter().map(ReportedCall::to_json).collect();
            json!({
                "processes": mpi.processes,
                "unread_processes": mpi.unread_processes,
                "seconds": mpi.seconds(),
                "calls": calls,
            })
        });
        let io = self.io.map(|io| {
            json!({
                "bytes_read": io.read,
                "bytes_written": io.written,
                "storage_bytes_read": io.storage_read,
                "storage_bytes_written": io.storage_written,
            })
        });
        json!({
            "command": self.command,
            "node": self.node,
            "job": self.job,
            "rank": self.rank,
            "method": self.method,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "start": self.start,
            "seconds": self.seconds,
            "processes": self.processes,
            "cpu": { "user_seconds": self.user_seconds, "system_seconds": self.system_seconds },
            "memory": { "peak_bytes": self.peak_memory },
            "io": io,
            "hits": self.hits(),
            "errors": self.errors(),
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "calls": calls,
            "mpi": mpi,
        })
    }

    /// Parses what [`RunReport::to_json`] returned in another process; None if it is malformed.
    pub(super) fn from_json(value: &Value) -> Option<RunReport> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let number = |key: &str| {
            value[key]
                .as_i64()
                .and_then(|number| i32::try_from(number).ok())
        };
        let io = &value["io"];
        let mpi = &value["mpi"];
        Some(RunReport {
            command: (value["command"].as_array()?.iter())
                .map(|word| word.as_str().map(str::to_owned))
                .collect::<Option<_>>()?,
            node: text("node")?,
            job: text("job"),
            rank: text("rank"),
            method: text("method"),
            exit_code: number("exit_code"),
            signal: number("signal"),
            start: value["start"].as_f64()?,
            seconds: value["seconds"].as_f64()?,
            processes: value["processes"].as_u64(),
            bytes_read: value["bytes_read"].as_u64()?,
            bytes_written: value["bytes_written"].as_u64()?,
            calls: calls_from_json(&value["calls"])?,
            user_seconds: value["cpu"]["user_seconds"].as_f64()?,
            system_seconds: value["cpu"]["system_seconds"].as_f64()?,
            peak_memory: value["memory"]["peak_bytes"].as_u64(),
            io: io.is_object().then(|| {
                let number = |key: &str| io[key].as_u64().unwrap_or(0);
                IoBytes {
                    read: number("bytes_read"),
                    written: number("bytes_written"),
                    storage_read: number("storage_bytes_read"),
                    storage_written: number("storage_bytes_written"),
                }
            }),
            mpi: match mpi {
                Value::Null => None,
                mpi => Some(ReportedMpi {
                    processes: mpi["processes"].as_u64()?,
                    unread_processes: mpi["unread_processes"].as_u64()?,
                    calls: calls_from_json(&mpi["calls"])?,
                }),
            },
        })
    }
}

impl ReportedMpi {
    pub(super) fn seconds(&self) -> f64 {
        self.calls.iter().map(|call| call.seconds).sum()
    }
}

impl ReportedCall {
    fn to_json(&self) -> Value {
        json!({
            "call": self.name,
            "hits": self.hits,
            "bytes": self.bytes,
            "seconds": self.seconds,
        })
    }

    fn from_json(value: &Value) -> Option<ReportedCall> {
        Some(ReportedCall {
            name: value["call"].as_str()?.to_owned(),
            hits: value["hits"].as_u64()?,
            bytes: value["bytes"].as_u64()?,
            seconds: value["seconds"].as_f64()?,
            errors: value["errors"].as_u64().unwrap_or(0),
        })
    }
}

fn calls_from_json(value: &Value) -> Option<Vec<ReportedCall>> {
    let calls = value.as_array()?.iter().map(ReportedCall::from_json);
    calls.collect()
}

/// Returns the file of one rank: `%r` in the path is replaced by the rank; without it, the rank is
/// inserted before the extension.
pub(super) fn rank_path(path: &Path, rank: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.contains("%r") {
        return path.with_file_name(name.replace("%r", rank));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(extension) => format!("{stem}.{rank}.{}", extension.to_string_lossy()),
        None => format!("{stem}.{rank}"),
    };
    path.with_file_name(name)
}

/// Returns `path`, or a path with the process ID if a run of the same job has written `path`: two
/// ranks of a job can have the same number, as with MPI_Comm_spawn.
pub(super) fn unused_in_job(path: PathBuf, job_start: Option<SystemTime>) -> PathBuf {
    let written = fs::metadata(&path).and_then(|found| found.modified()).ok();
    match (written, job_start) {
        (Some(written), Some(start)) if written >= start => {
            rank_path(&path, &std::process::id().to_string())
        }
        _ => path,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a report with round figures.
    pub(crate) fn example(rank: &str) -> RunReport {
        let call = |name: &str, hits, seconds, bytes, errors| ReportedCall {
            name: name.to_owned(),
            hits,
            bytes,
            seconds,
            errors,
        };
        RunReport {
            command: vec!["/opt/bin/solver".to_owned(), "input".to_owned()],
            node: "node17".to_owned(),
            job: None,
            rank: Some(rank.to_owned()),
            method: Some("eBPF".to_owned()),
            exit_code: Some(0),
            signal: None,
            start: 1000.0,
            seconds: 10.0,
            processes: None,
            bytes_read: 3_000_000,
            bytes_written: 1000,
            calls: vec![
                call("write", 1000, 0.5, 1000, 0),
                call("read", 10, 2.0, 3_000_000, 1),
                call("getpid", 5, 0.0, 0, 0),
            ],
            user_seconds: 7.0,
            system_seconds: 1.0,
            peak_memory: Some(1 << 30),
            io: Some(IoBytes {
                read: 1,
                written: 2,
                storage_read: 3,
                storage_written: 4,
            }),
            mpi: Some(ReportedMpi {
                processes: 1,
                unread_processes: 0,
                calls: vec![call("MPI_Send", 20, 4.0, 160, 0)],
            }),
        }
    }

    #[test]
    fn a_report_is_read_as_it_is_written() {
        let full = example("3");
        let bare = RunReport {
            mpi: None,
            io: None,
            peak_memory: None,
            rank: None,
            exit_code: None,
            signal: Some(9),
            ..full.clone()
        };
        for report in [full, bare] {
            let text = report.to_json().to_string();
            let read = serde_json::from_str(&text).expect("JSON");
            assert_eq!(RunReport::from_json(&read), Some(report));
        }
        assert_eq!(RunReport::from_json(&json!({})), None);
    }

    #[test]
    fn each_rank_has_its_own_file() {
        let path = |text: &str| rank_path(Path::new(text), "3").display().to_string();
        assert_eq!(path("/a/report.json"), "/a/report.3.json");
        assert_eq!(path("/a/report"), "/a/report.3");
        assert_eq!(path("/a.b/%r/report"), "/a.b/%r/report.3");
        assert_eq!(path("/a/rank%r-report.json"), "/a/rank3-report.json");
        assert_eq!(path("/a/.hidden"), "/a/.hidden.3");
    }

    #[test]
    fn a_file_of_the_same_job_is_not_overwritten() {
        let dir = pegel_testkit::TempDir::new();
        let path = dir.join("report.0.json");
        let before = SystemTime::now() - std::time::Duration::from_secs(60);
        assert_eq!(unused_in_job(path.clone(), Some(before)), path);
        fs::write(&path, "").expect("written");
        assert_ne!(unused_in_job(path.clone(), Some(before)), path);
        let later = SystemTime::now() + std::time::Duration::from_secs(60);
        assert_eq!(
            unused_in_job(path.clone(), Some(later)),
            path,
            "an earlier job"
        );
        assert_eq!(unused_in_job(path.clone(), None), path);
    }
}
