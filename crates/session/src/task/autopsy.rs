//! Describes a task that was killed or failed: its processes and memory, its limits, and the memory
//! and pressure of the node. Read at once, while the kernel still has the values.

use pegel_machine::{MachineFiles, MeminfoField, PressureLine, key_value_lines};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::autopsy_limits::limits;
use super::autopsy_processes::largest_processes;
use super::own_cgroup::{CgroupVersion, TaskCgroup};
use super::watch::TaskWatch;

/// The most bytes of an autopsy as JSON.
const AUTOPSY_BYTES_MAX: usize = 256 << 10;
/// The most bytes of a file that are read.
const FILE_BYTES_MAX: u64 = 32 << 10;
/// The most lines of a file that are kept; `memory.stat` has about 60.
const KEYS_MAX: usize = 128;
/// The longest key that is kept.
const KEY_BYTES_MAX: usize = 64;
/// The fields of `/proc/meminfo` that are kept.
const MEMINFO_FIELDS: [&str; 8] = [
    "MemTotal",
    "MemFree",
    "MemAvailable",
    "SwapTotal",
    "SwapFree",
    "Shmem",
    "Committed_AS",
    "CommitLimit",
];

/// The reason why a task is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum AutopsyCause {
    /// The kernel killed this number of processes because memory ran out.
    OomKill { kills: u64 },
    /// The task ended with an exit status.
    Exit { status: i32 },
    /// A signal killed the task.
    Signal { signal: i32 },
}

impl TaskWatch {
    /// Describes the task now. Parts that cannot be read are absent; the JSON has at most 256 KiB.
    /// Command lines are redacted.
    pub fn autopsy(&self, cause: AutopsyCause) -> Value {
        let cgroups = &self.scope.cgroups;
        let reader = AutopsyReader {
            machine: &self.machine,
        };
        let mut autopsy = Map::new();
        let mut put = |key: &str, value: Value| {
            if !is_empty(&value) {
                autopsy.insert(key.to_owned(), value);
            }
        };
        put("cause", json!(cause));
        put("exit", json!(self.exit()));
        let (pid, name) = (self.scope.root.pid, &self.scope.name);
        put("task", json!({ "pid": pid, "name": name }));
        put("peaks", json!(self.peaks));
        let memory = cgroups.memory.as_ref();
        put(
            "memory",
            memory.map_or(Value::Null, |group| reader.memory(group)),
        );
        put("limits", limits(&self.machine, cgroups));
        put("processes", largest_processes(&self.tree));
        let of_cgroup = cgroups.pressure().map(usage_folder);
        let of_cgroup = of_cgroup.map_or(Value::Null, |folder| {
            reader.pressure(|resource| format!("{folder}/{resource}.pressure"))
        });
        let of_node = reader.pressure(|resource| format!("proc/pressure/{resource}"));
        put(
            "pressure",
            object([("cgroup", of_cgroup), ("node", of_node)]),
        );
        put("node", reader.node_memory());
        bounded(autopsy)
    }
}

/// Drops the largest parts until the rest fits.
fn bounded(mut autopsy: Map<String, Value>) -> Value {
    for part in ["limits", "memory", "processes", "peaks", "pressure", "node"] {
        let length = serde_json::to_string(&autopsy).map_or(usize::MAX, |text| text.len());
        if length <= AUTOPSY_BYTES_MAX {
            break;
        }
        autopsy.remove(part);
        autopsy.insert("is_truncated".to_owned(), json!(true));
    }
    Value::Object(autopsy)
}

/// Returns an object of the values that are not empty.
pub(super) fn object<const N: usize>(values: [(&str, Value); N]) -> Value {
    let values = values.into_iter().filter(|(_, value)| !is_empty(value));
    let values = values.map(|(key, value)| (key.to_owned(), value));
    Value::Object(values.collect())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(values) => values.is_empty(),
        Value::Array(values) => values.is_empty(),
        _ => false,
    }
}

/// Returns the directory whose usage describes the task: its own group, else that of its root.
fn usage_folder(group: &TaskCgroup) -> String {
    group.own_folder().unwrap_or_else(|| group.folder())
}

struct AutopsyReader<'a> {
    machine: &'a MachineFiles,
}

impl AutopsyReader<'_> {
    fn bytes(&self, path: &str) -> Vec<u8> {
        let bytes = self.machine.bytes(path, FILE_BYTES_MAX);
        bytes.unwrap_or_default()
    }

    /// Returns the lines of a file of keys and numbers.
    fn keys(&self, path: &str) -> Value {
        let text = self.bytes(path);
        let lines = key_value_lines(&text).filter(|(key, _)| key.len() <= KEY_BYTES_MAX);
        let lines = lines.map(|(key, value)| (key.to_owned(), json!(value)));
        Value::Object(lines.take(KEYS_MAX).collect())
    }

    fn memory(&self, group: &TaskCgroup) -> Value {
        let folder = usage_folder(group);
        let number = |file: &str| json!(self.machine.number(format!("{folder}/{file}")));
        let keys = |file: &str| self.keys(&format!("{folder}/{file}"));
        let is_own = group.own_path().is_some();
        let path = json!(group.own_path().unwrap_or(group.path()));
        match group.version {
            CgroupVersion::V2 => object([
                ("cgroup", path),
                ("is_own", json!(is_own)),
                ("current_bytes", number("memory.current")),
                ("peak_bytes", number("memory.peak")),
                ("swap_bytes", number("memory.swap.current")),
                ("swap_peak_bytes", number("memory.swap.peak")),
                ("stat", keys("memory.stat")),
                ("events", keys("memory.events")),
                ("events_local", keys("memory.events.local")),
                ("swap_events", keys("memory.swap.events")),
            ]),
            CgroupVersion::V1 => object([
                ("cgroup", path),
                ("is_own", json!(is_own)),
                ("current_bytes", number("memory.usage_in_bytes")),
                ("peak_bytes", number("memory.max_usage_in_bytes")),
                ("limit_hits", number("memory.failcnt")),
                ("stat", keys("memory.stat")),
                ("events", keys("memory.oom_control")),
            ]),
        }
    }

    /// Returns the pressure of each resource, from the files that `path` names.
    fn pressure(&self, path: impl Fn(&str) -> String) -> Value {
        let of = |resource: &str| {
            let text = self.bytes(&path(resource));
            let lines = text.split(|&byte| byte == b'\n');
            let lines = lines.filter_map(PressureLine::parse).take(2);
            let lines = lines.map(|line| {
                let key = if line.is_full { "full" } else { "some" };
                let [avg10, avg60, avg300] = line.averages;
                let total = line.total_micros.map(|micros| micros as f64 / 1e6);
                let values = object([
                    ("avg10", json!(avg10)),
                    ("avg60", json!(avg60)),
                    ("avg300", json!(avg300)),
                    ("total_seconds", json!(total)),
                ]);
                (key.to_owned(), values)
            });
            Value::Object(lines.collect())
        };
        object(["cpu", "memory", "io"].map(|resource| (resource, of(resource))))
    }

    /// Returns the node's memory in bytes.
    fn node_memory(&self) -> Value {
        let text = self.bytes("proc/meminfo");
        let fields = text.split(|&byte| byte == b'\n');
        let fields = fields.filter_map(MeminfoField::parse).filter_map(|field| {
            let key = MEMINFO_FIELDS
                .iter()
                .find(|key| key.as_bytes() == field.key)?;
            let bytes = field.number.saturating_mul(1024);
            field.is_kib.then(|| ((*key).to_owned(), json!(bytes)))
        });
        Value::Object(fields.collect())
    }
}
