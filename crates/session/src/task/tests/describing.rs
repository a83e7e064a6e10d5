//! The autopsy.

use serde_json::json;

use super::fake_machine::{FakeMachine, FakeProcess};
use crate::task::AutopsyCause;

const KILL: AutopsyCause = AutopsyCause::OomKill { kills: 1 };

#[test]
fn an_autopsy_has_memory_limits_pressure_and_the_largest_processes() {
    let machine = FakeMachine::new();
    machine.add_task_cgroup("50\n");
    for pid in 60..75 {
        let child = FakeProcess {
            parent: 50,
            resident_pages: u64::from(pid) * 100,
            ..FakeProcess::default()
        };
        machine.process(pid, child);
        machine.write(&format!("proc/{pid}/oom_score_adj"), "-17\n");
    }
    let folder = "sys/fs/cgroup/task";
    machine.write(&format!("{folder}/pids.max"), "100\n");
    machine.write(&format!("{folder}/cpu.max"), "200000 100000\n");
    machine.write(&format!("{folder}/cpuset.cpus.effective"), "0-3\n");
    let pressure = "some avg10=1.50 avg60=0.00 avg300=0.00 total=2000000\n";
    machine.write(&format!("{folder}/memory.pressure"), pressure);
    machine.write("proc/pressure/io", pressure);
    machine.write(
        "proc/meminfo",
        "MemTotal:  1000 kB\nMemAvailable: 10 kB\nSlab: 1 kB\n",
    );
    let mut watch = machine.watch();
    // The largest is killed between two samples.
    watch.sample(1);
    machine.end(74);
    let found = watch.autopsy(KILL);
    assert_eq!(found["cause"], json!({"kind": "oom-kill", "kills": 1}));
    let memory = &found["memory"];
    assert_eq!(
        (&memory["cgroup"], &memory["is_own"]),
        (&json!("/task"), &json!(true))
    );
    assert_eq!(
        (&memory["current_bytes"], &memory["peak_bytes"]),
        (&json!(1000), &json!(2000))
    );
    assert_eq!(memory["stat"], json!({"anon": 900, "file": 100}));
    assert_eq!(memory["events"]["oom_kill"], 0);
    let limits = &found["limits"];
    let expected = json!([{"cgroup": "/task", "max_bytes": 1_000_000, "current_bytes": 1000}]);
    assert_eq!(limits["memory"], expected);
    assert_eq!(
        limits["pids"],
        json!([{"cgroup": "/task", "max": 100, "current": 2}])
    );
    assert_eq!(limits["cpu"][0]["quota_and_period_micros"], "200000 100000");
    assert_eq!(limits["cpuset"]["cpus"], "0-3");
    let pressure = &found["pressure"];
    assert_eq!(pressure["cgroup"]["memory"]["some"]["avg10"], 1.5);
    assert_eq!(pressure["node"]["io"]["some"]["total_seconds"], 2.0);
    assert_eq!(
        found["node"],
        json!({"MemTotal": 1000 << 10, "MemAvailable": 10 << 10})
    );
    let processes = found["processes"].as_array().expect("a list");
    assert_eq!(processes.len(), 10);
    assert_eq!(
        (&processes[0]["pid"], &processes[0]["has_ended"]),
        (&json!(74), &json!(true))
    );
    assert_eq!(
        (&processes[1]["pid"], &processes[1]["oom_score_adj"]),
        (&json!(73), &json!(-17))
    );
    assert_eq!(processes[0]["command"], "p74 --token [hidden]");
    assert_eq!(processes[1]["swap_bytes"], 3 << 10);
    assert!(!found.to_string().contains("PLANTED"));
    // Found gone in a sample: still shown.
    for now in 2..8 {
        watch.sample(now);
    }
    assert_eq!(watch.tree.members().count(), 15);
    assert_eq!(watch.autopsy(KILL)["processes"][0]["pid"], 74);
}

#[test]
fn an_autopsy_works_when_everything_is_gone() {
    let machine = FakeMachine::new();
    machine.add_task_cgroup("50\n");
    let watch = machine.watch();
    machine.remove("sys");
    machine.remove("proc");
    let found = watch.autopsy(AutopsyCause::Exit { status: 137 });
    assert_eq!(found["cause"], json!({"kind": "exit", "status": 137}));
    assert_eq!(found["task"], json!({"pid": 50, "name": "p50"}));
    assert_eq!(found["peaks"]["memory_bytes"], 1000);
    assert_eq!(found["processes"][0]["has_ended"], true);
    assert!(found.get("pressure").is_none() && found.get("limits").is_none());
    let killed = watch.autopsy(AutopsyCause::Signal { signal: 9 });
    assert_eq!(killed["cause"], json!({"kind": "signal", "signal": 9}));
}

#[test]
fn an_autopsy_is_bounded() {
    let machine = FakeMachine::new();
    let deep = "/\u{1}\"quoted\"".repeat(60);
    let folder = format!("sys/fs/cgroup{deep}");
    machine.write("proc/50/cgroup", format!("0::{deep}\n"));
    machine.write(&format!("{folder}/cgroup.procs"), "50\n");
    machine.write(&format!("{folder}/memory.current"), "1\n");
    let line = |i| format!("{}{i} 18446744073709551615\n", "\u{2}".repeat(60));
    let stat: String = (0..100_000).map(line).collect();
    machine.write(&format!("{folder}/memory.stat"), stat);
    let mut at = folder.as_str();
    while at != "sys/fs/cgroup" {
        machine.write(&format!("{at}/memory.max"), "5\n");
        at = at.rsplit_once('/').expect("below").0;
    }
    for pid in 60..80 {
        let child = FakeProcess {
            parent: 50,
            ..FakeProcess::default()
        };
        machine.process(pid, child);
        machine.write(&format!("proc/{pid}/cmdline"), vec![1; 10_000]);
    }
    let text = machine.watch().autopsy(KILL).to_string();
    assert!(text.len() <= 256 << 10, "{} bytes", text.len());
    assert!(text.contains("oom-kill"));
}
