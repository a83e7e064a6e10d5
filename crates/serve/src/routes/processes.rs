//! `GET /api/v1/processes`: the processes of this node as of the collector's latest pass, or their
//! sums by user, control group or job.
//!
//! Every client that may read sees every process, as in `ps`. Command lines are different: see
//! [`Caller::visible_commands`].

use std::collections::BTreeMap;

use axum::extract::Extension;
use axum::http::{HeaderMap, StatusCode, Uri};
use pegel_metric::{CommandVisibility, ProcessRow, ProcessTable};
use serde::Serialize;

use super::{HandlerResult, SharedContext};
use crate::agent_handles::ProcessesUnavailable;
use crate::api_error::ApiError;
use crate::guard::Caller;
use crate::query_parameters::QueryParameters;

const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 500;

/// Lists the processes, or groups of them, that use most of a resource.
pub(super) async fn processes(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
) -> HandlerResult {
    let request = ProcessesRequest::parse(&uri)?;
    let table = context.agent.status_source.processes();
    let table = table.map_err(unavailable)?;
    let visible = caller.visible_commands();
    context
        .respond_latest(&caller, &headers, move |buffer| {
            buffer.json(&request.answer(&table, visible))
        })
        .await
}

fn unavailable(reason: ProcessesUnavailable) -> ApiError {
    match reason {
        ProcessesUnavailable::CollectorOff => ApiError::new(
            StatusCode::NOT_FOUND,
            "the collector top_processes does not run",
        )
        .hint("remove collectors.top_processes.enabled: false, or set level to 3 or above"),
        ProcessesUnavailable::NotReady => ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the processes are not read yet",
        )
        .hint("retry in a second; /status has the state of the collector top_processes"),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessGrouping {
    Process,
    User,
    Cgroup,
    Job,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessOrder {
    Cpu,
    Memory,
    Read,
    Write,
    Io,
    Gpu,
    Threads,
}

const GROUPINGS: [(&str, ProcessGrouping); 4] = [
    ("process", ProcessGrouping::Process),
    ("user", ProcessGrouping::User),
    ("cgroup", ProcessGrouping::Cgroup),
    ("job", ProcessGrouping::Job),
];
const ORDERS: [(&str, ProcessOrder); 7] = [
    ("cpu", ProcessOrder::Cpu),
    ("memory", ProcessOrder::Memory),
    ("read", ProcessOrder::Read),
    ("write", ProcessOrder::Write),
    ("io", ProcessOrder::Io),
    ("gpu", ProcessOrder::Gpu),
    ("threads", ProcessOrder::Threads),
];

#[derive(Debug)]
struct ProcessesRequest {
    grouping: ProcessGrouping,
    order: ProcessOrder,
    limit: usize,
}

/// The response.
#[derive(Serialize)]
struct ProcessesAnswer<'a> {
    /// Milliseconds since 1970.
    time: i64,
    interval: f64,
    by: &'static str,
    /// The number of rows without the limit.
    total: usize,
    rows: Vec<AnswerRow<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum AnswerRow<'a> {
    Process(Box<ProcessAnswer<'a>>),
    Group(GroupAnswer<'a>),
}

#[derive(Serialize)]
struct ProcessAnswer<'a> {
    pid: u32,
    comm: &'a str,
    user: &'a str,
    uid: Option<u32>,
    state: char,
    #[serde(flatten)]
    usage: Usage,
    cgroup: &'a str,
    job: Option<&'a str>,
    started: i64,
    command: Option<&'a str>,
}

#[derive(Serialize)]
struct GroupAnswer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a str>,
    processes: u64,
    #[serde(flatten)]
    usage: Usage,
}

/// What a process, or a group of processes, uses.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Usage {
    threads: u64,
    /// In cores.
    cpu: f64,
    memory: u64,
    read: Option<f64>,
    write: Option<f64>,
    gpu_memory: Option<u64>,
}

impl Usage {
    fn of(row: &ProcessRow) -> Usage {
        Usage {
            threads: row.threads,
            cpu: row.cpu,
            memory: row.memory,
            read: row.io.map(|io| io.read),
            write: row.io.map(|io| io.write),
            gpu_memory: row.gpu_memory,
        }
    }

    /// Adds another usage; a sum is unknown only if all parts are.
    fn add(&mut self, other: &Usage) {
        let add = |a: &mut Option<f64>, b: Option<f64>| {
            *a = a.map(|a| a + b.unwrap_or(0.0)).or(b);
        };
        self.threads = self.threads.saturating_add(other.threads);
        self.cpu += other.cpu;
        self.memory = self.memory.saturating_add(other.memory);
        add(&mut self.read, other.read);
        add(&mut self.write, other.write);
        let gpu = self
            .gpu_memory
            .map(|a| a.saturating_add(other.gpu_memory.unwrap_or(0)));
        self.gpu_memory = gpu.or(other.gpu_memory);
    }

    fn value(&self, order: ProcessOrder) -> f64 {
        let unknown = -1.0;
        match order {
            ProcessOrder::Cpu => self.cpu,
            ProcessOrder::Memory => self.memory as f64,
            ProcessOrder::Read => self.read.unwrap_or(unknown),
            ProcessOrder::Write => self.write.unwrap_or(unknown),
            ProcessOrder::Io => match (self.read, self.write) {
                (None, None) => unknown,
                (read, write) => read.unwrap_or(0.0) + write.unwrap_or(0.0),
            },
            ProcessOrder::Gpu => self.gpu_memory.map_or(unknown, |bytes| bytes as f64),
            ProcessOrder::Threads => self.threads as f64,
        }
    }

    /// Rounds to what was measured: CPU time has ticks of 10 ms.
    fn rounded(&self) -> Usage {
        Usage {
            cpu: (self.cpu * 1e4).round() / 1e4,
            read: self.read.map(f64::round),
            write: self.write.map(f64::round),
            ..*self
        }
    }
}

impl ProcessesRequest {
    fn parse(uri: &Uri) -> Result<ProcessesRequest, ApiError> {
        let parameters = QueryParameters::parse(uri, &["by", "sort", "limit"])?;
        let limit = match parameters.single("limit")? {
            None => LIMIT_DEFAULT,
            Some(text) => parse_limit(text)?,
        };
        Ok(ProcessesRequest {
            grouping: parse_choice("by", parameters.single("by")?, &GROUPINGS)?,
            order: parse_choice("sort", parameters.single("sort")?, &ORDERS)?,
            limit,
        })
    }

    fn answer<'a>(
        &self,
        table: &'a ProcessTable,
        visible: CommandVisibility,
    ) -> ProcessesAnswer<'a> {
        let (total, rows) = match self.grouping {
            ProcessGrouping::Process => self.list(table, visible),
            _ => self.sum(table),
        };
        let by = GROUPINGS.iter().find(|(_, known)| *known == self.grouping);
        ProcessesAnswer {
            time: table.time,
            interval: (table.interval * 1e3).round() / 1e3,
            by: by.map_or("", |(name, _)| *name),
            total,
            rows,
        }
    }

    fn list<'a>(
        &self,
        table: &'a ProcessTable,
        visible: CommandVisibility,
    ) -> (usize, Vec<AnswerRow<'a>>) {
        let rows = table.rows.iter().map(|row| (Usage::of(row), row));
        let top = self.take_top(rows.collect(), |row| row.pid);
        let answer = |(usage, row): &(Usage, &'a ProcessRow)| {
            AnswerRow::Process(Box::new(ProcessAnswer {
                pid: row.pid,
                comm: &row.comm,
                user: &row.user,
                uid: row.uid,
                state: row.state,
                usage: usage.rounded(),
                cgroup: &row.cgroup,
                job: row.job.as_deref(),
                started: row.started,
                command: row.command_for(visible),
            }))
        };
        (table.rows.len(), top.iter().map(answer).collect())
    }

    /// Sums the processes by user, group or job. Processes outside of jobs are in no row of the
    /// last.
    fn sum<'a>(&self, table: &'a ProcessTable) -> (usize, Vec<AnswerRow<'a>>) {
        let mut sums: BTreeMap<&str, (u64, Usage)> = BTreeMap::new();
        for row in &table.rows {
            let key = match self.grouping {
                ProcessGrouping::User => Some(&*row.user),
                ProcessGrouping::Cgroup => Some(&*row.cgroup),
                ProcessGrouping::Job => row.job.as_deref(),
                ProcessGrouping::Process => None,
            };
            if let Some(key) = key {
                let (count, usage) = sums.entry(key).or_default();
                *count += 1;
                usage.add(&Usage::of(row));
            }
        }
        let total = sums.len();
        let rows = sums
            .iter()
            .map(|(key, (count, usage))| (*usage, (*key, *count)));
        let top = self.take_top(rows.collect(), |(key, _)| *key);
        let of = |grouping, key| (self.grouping == grouping).then_some(key);
        let answer = |(usage, (key, count)): &(Usage, (&'a str, u64))| {
            AnswerRow::Group(GroupAnswer {
                user: of(ProcessGrouping::User, *key),
                cgroup: of(ProcessGrouping::Cgroup, *key),
                job: of(ProcessGrouping::Job, *key),
                processes: *count,
                usage: usage.rounded(),
            })
        };
        (total, top.iter().map(answer).collect())
    }

    /// Returns the rows with the largest values, in order; equal ones by their key.
    fn take_top<T: Copy, K: Ord>(
        &self,
        mut rows: Vec<(Usage, T)>,
        key: impl Fn(&T) -> K,
    ) -> Vec<(Usage, T)> {
        rows.sort_by(|(a, key_a), (b, key_b)| {
            let by_value = b.value(self.order).total_cmp(&a.value(self.order));
            by_value.then_with(|| key(key_a).cmp(&key(key_b)))
        });
        rows.truncate(self.limit);
        rows
    }
}

fn parse_choice<T: Copy>(
    parameter: &str,
    given: Option<&str>,
    choices: &[(&str, T)],
) -> Result<T, ApiError> {
    let found = match given {
        None => choices.first(),
        Some(given) => choices.iter().find(|(name, _)| *name == given),
    };
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        ApiError::bad_request(format!("{parameter}={}", given.unwrap_or_default()))
            .hint(format!("accepted values: {}", names.join(", ")))
    })
}

fn parse_limit(text: &str) -> Result<usize, ApiError> {
    match text.parse() {
        Ok(limit @ 1..=LIMIT_MAX) => Ok(limit),
        _ => Err(ApiError::bad_request(format!("limit={text}"))
            .hint(format!("a whole number from 1 to {LIMIT_MAX}"))),
    }
}

#[cfg(test)]
mod tests {
    use pegel_metric::ProcessIoRates;
    use serde_json::{Value, json};

    use super::*;

    fn process(pid: u32, user: &str, cpu: f64, memory: u64) -> ProcessRow {
        ProcessRow {
            pid,
            comm: format!("p{pid}").into(),
            uid: Some(1000 + u32::from(user == "bob")),
            user: user.into(),
            threads: 2,
            state: 'S',
            cpu,
            memory,
            io: (user == "ada").then_some(ProcessIoRates {
                read: 1.4,
                write: f64::from(pid),
            }),
            gpu_memory: (pid == 3).then_some(7),
            cgroup: "/g".into(),
            job: (pid > 2).then(|| "17".into()),
            started: 5,
            command: Some(format!("run {pid}").into()),
            owner: Some(1000 + u32::from(user == "bob")),
        }
    }

    fn table() -> ProcessTable {
        let rows = vec![
            process(1, "ada", 0.1 + 0.2, 10),
            process(2, "bob", 2.0, 10),
            process(3, "ada", 1.0, 30),
        ];
        ProcessTable {
            time: 9_000,
            interval: 5.000_4,
            rows,
        }
    }

    fn answer(query: &str, visible: CommandVisibility) -> Value {
        let uri: Uri = format!("/api/v1/processes{query}").parse().expect("a URI");
        let request = ProcessesRequest::parse(&uri).expect("valid");
        serde_json::to_value(request.answer(&table(), visible)).expect("JSON")
    }

    fn order(query: &str) -> Vec<u64> {
        let found = answer(query, CommandVisibility::None);
        let rows = found["rows"].as_array().expect("rows").iter();
        rows.map(|row| row["pid"].as_u64().expect("a pid"))
            .collect()
    }

    #[test]
    fn rows_are_sorted_and_limited() {
        assert_eq!(order(""), [2, 3, 1]);
        assert_eq!(order("?sort=memory"), [3, 1, 2]);
        assert_eq!(order("?sort=write"), [3, 1, 2]);
        assert_eq!(order("?sort=io&limit=1"), [3]);
        assert_eq!(order("?sort=gpu"), [3, 1, 2]);
        assert_eq!(order("?sort=threads"), [1, 2, 3]);
        let found = answer("?limit=1", CommandVisibility::None);
        assert_eq!(
            (&found["total"], &found["by"]),
            (&json!(3), &json!("process"))
        );
        assert_eq!(
            (&found["time"], &found["interval"]),
            (&json!(9000), &json!(5.0))
        );
    }

    #[test]
    fn a_row_has_all_fields_and_no_float_noise() {
        let found = answer("?sort=memory", CommandVisibility::OwnedBy(1000));
        let expected = json!({
            "pid": 1, "comm": "p1", "user": "ada", "uid": 1000, "state": "S", "threads": 2,
            "cpu": 0.3, "memory": 10, "read": 1.0, "write": 1.0, "gpu_memory": null,
            "cgroup": "/g", "job": null, "started": 5, "command": "run 1",
        });
        assert_eq!(found["rows"][1], expected);
        let other = &found["rows"][2];
        assert_eq!(
            (&other["read"], &other["command"]),
            (&Value::Null, &Value::Null)
        );
    }

    #[test]
    fn command_lines_are_shown_to_those_who_may_see_them() {
        let commands = |visible| {
            let found = answer("?sort=threads", visible);
            let rows = found["rows"].as_array().expect("rows").clone();
            rows.iter()
                .map(|row| row["command"].is_string())
                .collect::<Vec<bool>>()
        };
        assert_eq!(commands(CommandVisibility::All), [true, true, true]);
        assert_eq!(
            commands(CommandVisibility::OwnedBy(1001)),
            [false, true, false]
        );
        assert_eq!(
            commands(CommandVisibility::OwnedBy(0)),
            [false, false, false]
        );
        assert_eq!(commands(CommandVisibility::None), [false, false, false]);
    }

    #[test]
    fn groups_are_sums() {
        let users = answer("?by=user", CommandVisibility::All);
        let ada = json!({
            "user": "ada", "processes": 2, "threads": 4, "cpu": 1.3, "memory": 40, "read": 3.0,
            "write": 4.0, "gpu_memory": 7,
        });
        assert_eq!((&users["total"], &users["rows"][1]), (&json!(2), &ada));
        assert_eq!(
            users["rows"][0]["read"],
            Value::Null,
            "unknown for all of bob's"
        );
        let jobs = answer("?by=job", CommandVisibility::All);
        assert_eq!(
            (&jobs["total"], &jobs["rows"][0]["job"]),
            (&json!(1), &json!("17"))
        );
        let groups = answer("?by=cgroup&sort=memory", CommandVisibility::All);
        assert_eq!(groups["rows"][0]["cgroup"], json!("/g"));
        assert_eq!(groups["rows"][0]["processes"], json!(3));
    }

    #[test]
    fn mistakes_are_named() {
        for (query, expected) in [
            ("?by=pid", "by=pid"),
            ("?sort=size", "sort=size"),
            ("?limit=0", "limit=0"),
            ("?limit=501", "limit=501"),
            ("?limit=x", "limit=x"),
            ("?order=cpu", "unknown parameter \"order\""),
        ] {
            let uri: Uri = format!("/x{query}").parse().expect("a URI");
            let error = ProcessesRequest::parse(&uri).expect_err("refused");
            assert_eq!(error.message(), expected);
        }
    }
}
