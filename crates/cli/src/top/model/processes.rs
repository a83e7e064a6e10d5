//! The processes, users, cgroups or jobs that use most of the node, as `/api/v1/processes` lists
//! them. The agent chooses the rows: it knows all processes, while its series cover a few.

use serde_json::Value;

/// The most rows requested at once; the agent accepts no larger limit.
pub(crate) const PROCESSES_MAX: usize = 500;

/// The entity that one row describes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum TopGrouping {
    #[default]
    Process,
    User,
    Cgroup,
    Job,
}

impl TopGrouping {
    const ALL: [TopGrouping; 4] = [
        TopGrouping::Process,
        TopGrouping::User,
        TopGrouping::Cgroup,
        TopGrouping::Job,
    ];

    /// Returns the value of the query parameter `by`, which is also the label on the screen.
    pub(crate) fn label(self) -> &'static str {
        match self {
            TopGrouping::Process => "process",
            TopGrouping::User => "user",
            TopGrouping::Cgroup => "cgroup",
            TopGrouping::Job => "job",
        }
    }

    /// Returns the name of several rows.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            TopGrouping::Process => "processes",
            TopGrouping::User => "users",
            TopGrouping::Cgroup => "cgroups",
            TopGrouping::Job => "jobs",
        }
    }

    pub(crate) fn next(self) -> TopGrouping {
        TopGrouping::ALL[(self as usize + 1) % TopGrouping::ALL.len()]
    }

    fn parse(word: &str) -> Option<TopGrouping> {
        let mut all = TopGrouping::ALL.into_iter();
        all.find(|grouping| grouping.label() == word)
    }
}

/// The column by which rows are ordered, highest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ProcessSort {
    #[default]
    Cpu,
    Memory,
    Read,
    Write,
    Gpu,
    Threads,
}

impl ProcessSort {
    pub(crate) const ALL: [ProcessSort; 6] = [
        ProcessSort::Cpu,
        ProcessSort::Memory,
        ProcessSort::Read,
        ProcessSort::Write,
        ProcessSort::Gpu,
        ProcessSort::Threads,
    ];

    /// Returns the value of the query parameter `sort`.
    pub(crate) fn parameter(self) -> &'static str {
        match self {
            ProcessSort::Cpu => "cpu",
            ProcessSort::Memory => "memory",
            ProcessSort::Read => "read",
            ProcessSort::Write => "write",
            ProcessSort::Gpu => "gpu",
            ProcessSort::Threads => "threads",
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            ProcessSort::Cpu => "CPU",
            ProcessSort::Gpu => "GPU memory",
            other => other.parameter(),
        }
    }

    fn value(self, row: &ListedProcess) -> Option<f64> {
        match self {
            ProcessSort::Cpu => row.cpu,
            ProcessSort::Memory => row.memory,
            ProcessSort::Read => row.read,
            ProcessSort::Write => row.write,
            ProcessSort::Gpu => row.gpu_memory,
            ProcessSort::Threads => row.threads,
        }
    }
}

/// The parameters of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessQuery {
    pub grouping: TopGrouping,
    pub sort: ProcessSort,
    pub limit: usize,
}

/// The list of processes as far as known.
#[derive(Debug, Default)]
pub(crate) enum ProcessListState {
    #[default]
    Waiting,
    Listed(ProcessList),
    /// The agent's reason why there is no list.
    Unavailable(String),
}

impl ProcessListState {
    /// Returns the list if its rows are of this grouping.
    pub(crate) fn list(&self, grouping: TopGrouping) -> Option<&ProcessList> {
        match self {
            ProcessListState::Listed(list) if list.grouping == grouping => Some(list),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProcessList {
    pub grouping: TopGrouping,
    /// Number of processes or groups on the node; the rows are the first ones.
    pub total: usize,
    pub rows: Vec<ListedProcess>,
}

/// A process, or the sums over all processes of a user, cgroup or job.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ListedProcess {
    /// Identifies the row in the next list.
    pub key: Box<str>,
    /// The name of the process, user, cgroup or job.
    pub name: String,
    pub pid: Option<u64>,
    /// Number of processes in a group.
    pub processes: Option<f64>,
    pub user: String,
    pub state: String,
    pub threads: Option<f64>,
    /// CPUs in use: 1 is one core for all of the time.
    pub cpu: Option<f64>,
    /// Resident bytes.
    pub memory: Option<f64>,
    /// Bytes per second; `None` where the agent is not permitted to read them.
    pub read: Option<f64>,
    pub write: Option<f64>,
    pub gpu_memory: Option<f64>,
    pub cgroup: String,
    pub job: String,
    /// Start time in seconds since 1970.
    pub started: Option<f64>,
    /// The command line, if the agent reveals it to this user.
    pub command: Option<String>,
}

impl ProcessList {
    /// Parses a response; `None` if it is malformed.
    pub(crate) fn parse(json: &Value) -> Option<ProcessList> {
        let grouping = TopGrouping::parse(json["by"].as_str()?)?;
        let rows = json["rows"].as_array()?.iter().take(PROCESSES_MAX);
        let rows: Vec<ListedProcess> = rows.map(|row| parse_row(grouping, row)).collect();
        let total = json["total"].as_u64().unwrap_or_default() as usize;
        Some(ProcessList {
            grouping,
            total: total.max(rows.len()),
            rows,
        })
    }

    /// Sorts the rows, highest first; rows without a value come last.
    pub(crate) fn sort(&mut self, sort: ProcessSort) {
        let key = |row: &ListedProcess| sort.value(row).unwrap_or(f64::NEG_INFINITY);
        self.rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
    }

    pub(crate) fn row(&self, key: &str) -> Option<&ListedProcess> {
        self.rows.iter().find(|row| *row.key == *key)
    }
}

impl ListedProcess {
    /// Returns the command line without the directory of the program, else the name.
    pub(crate) fn title(&self) -> String {
        let Some(command) = self.command.as_deref().filter(|text| !text.is_empty()) else {
            return self.name.clone();
        };
        let (program, arguments) = command.split_at(command.find(' ').unwrap_or(command.len()));
        let program = program.rsplit('/').next().unwrap_or(program);
        // A program may rename itself; its name is then the better hint.
        if self.name.starts_with(program) || program.starts_with(&self.name) {
            format!("{program}{arguments}")
        } else {
            format!("{}: {command}", self.name)
        }
    }

    /// Returns whether a word occurs in the row. The word is in lower case.
    pub(crate) fn contains(&self, word: &str) -> bool {
        let pid = self.pid.map(|pid| pid.to_string()).unwrap_or_default();
        let command = self.command.as_deref().unwrap_or_default();
        [
            &self.name,
            &self.user,
            &self.cgroup,
            &self.job,
            command,
            &pid,
        ]
        .iter()
        .any(|text| text.to_lowercase().contains(word))
    }
}

fn parse_row(grouping: TopGrouping, row: &Value) -> ListedProcess {
    let number = |key: &str| row[key].as_f64();
    let text = |key: &str| match &row[key] {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    let name = match grouping {
        TopGrouping::Process => text("comm"),
        grouping => text(grouping.label()),
    };
    let (pid, started) = (row["pid"].as_u64(), number("started"));
    let key = match pid {
        // The kernel reuses process IDs.
        Some(pid) => format!("{pid} {}", started.unwrap_or_default()),
        None => name.clone(),
    };
    ListedProcess {
        key: key.into(),
        name,
        pid,
        processes: number("processes"),
        user: text("user"),
        state: text("state"),
        threads: number("threads"),
        cpu: number("cpu"),
        memory: number("memory"),
        read: number("read"),
        write: number("write"),
        gpu_memory: number("gpu_memory"),
        cgroup: text("cgroup"),
        job: text("job"),
        started,
        command: row["command"].as_str().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list() -> ProcessList {
        let row = |pid, comm, cpu, read: Option<f64>, command| {
            json!({"pid": pid, "comm": comm, "user": "root", "uid": 0, "threads": 3, "state": "R",
                "cpu": cpu, "memory": 4096, "read": read, "write": 0.0, "gpu_memory": null,
                "cgroup": "/", "job": null, "started": 12, "command": command})
        };
        let rows = [
            row(1, "a", 0.5, Some(7.0), json!("/usr/bin/a -x /b")),
            row(2, "b", 2.0, None, json!(null)),
            row(3, "c", 1.0, Some(9.0), json!("renamed -y")),
        ];
        let answer =
            json!({"time": 1, "interval": 5.0, "by": "process", "total": 90, "rows": rows});
        ProcessList::parse(&answer).expect("valid")
    }

    #[test]
    fn rows_without_a_value_are_last() {
        let mut list = list();
        let order =
            |list: &ProcessList| -> Vec<_> { list.rows.iter().filter_map(|row| row.pid).collect() };
        list.sort(ProcessSort::Cpu);
        assert_eq!(order(&list), [2, 3, 1]);
        list.sort(ProcessSort::Read);
        assert_eq!(order(&list), [3, 1, 2]);
        assert_eq!(list.total, 90);
    }

    #[test]
    fn a_title_has_the_command_line_if_it_is_known() {
        let list = list();
        let titles: Vec<String> = list.rows.iter().map(ListedProcess::title).collect();
        assert_eq!(titles, ["a -x /b", "b", "c: renamed -y"]);
        assert!(list.rows[0].contains("-x") && !list.rows[1].contains("-x"));
    }

    #[test]
    fn groups_are_named_by_their_key() {
        let rows = json!([{"job": "4711", "processes": 12, "cpu": 3.5, "memory": 1, "read": null}]);
        let answer = json!({"by": "job", "total": 1, "rows": rows});
        let list = ProcessList::parse(&answer).expect("valid");
        assert_eq!(list.rows[0].name, "4711");
        assert_eq!(list.rows[0].processes, Some(12.0));
        assert_eq!(
            ProcessList::parse(&json!({"by": "colour", "rows": []})),
            None
        );
        assert_eq!(ProcessList::parse(&json!([])), None);
    }
}
