//! A real Slurm with several nodes on this machine, started by the test in a directory of its own.
//! The jobs of one test have cgroups, as on clusters.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{ChildProcess, TempDir, eventually_within, need, need_hardware, set_mode};
use serde_json::Value;

use crate::PEGEL;
use crate::ssh_server::JOB_TIME;
use crate::test_job::{BEGIN, TestJob};

const NODES: usize = 3;

/// The daemons of a cluster; they end with it.
struct SlurmCluster {
    dir: TempDir,
    _daemons: Vec<ChildProcess>,
}

/// How Slurm keeps track of the processes of a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProcessTracking {
    Parents,
    /// Cgroups of version 1: Slurm's plugin for version 2 needs systemd.
    Cgroups,
}

impl SlurmCluster {
    /// Starts munged, slurmctld and three slurmd; `None`, with the skip recorded, where they are
    /// missing or cannot run.
    #[track_caller]
    fn start(tracking: ProcessTracking) -> Option<SlurmCluster> {
        for program in ["munged", "slurmctld", "slurmd", "srun", "salloc", "sinfo"] {
            need(program)?;
        }
        let is_root = rustix::process::geteuid().is_root();
        need_hardware(is_root, "root privilege to start slurmd")?;
        let dir = TempDir::new();
        set_mode(dir.path(), 0o755);
        for name in ["state", "spool"] {
            fs::create_dir(dir.join(name)).expect("made");
        }
        fs::write(dir.join("munge.key"), [0x5a; 1024]).expect("written");
        set_mode(dir.join("munge.key"), 0o400);
        fs::write(dir.join("slurm.conf"), configuration(&dir, tracking)).expect("written");
        fs::write(dir.join("cgroup.conf"), CGROUP_CONFIGURATION).expect("written");
        let mut cluster = SlurmCluster {
            dir,
            _daemons: Vec::new(),
        };
        let path = |name: &str| cluster.dir.join(name).display().to_string();
        let mut munged = Command::new("munged");
        munged.args(["--foreground", "--force", "--num-threads=1"]);
        for (option, name) in [
            ("key", "munge.key"),
            ("pid", "munged.pid"),
            ("log", "munged.log"),
            ("seed", "munge.seed"),
        ] {
            munged.arg(format!("--{option}-file={}", path(name)));
        }
        munged.arg(format!("--socket={}", path("munge.sock")));
        let mut slurmctld = Command::new("slurmctld");
        slurmctld.args(["-D", "-c", "-f", &path("slurm.conf")]);
        let mut daemons = vec![ChildProcess::start(&mut munged)];
        eventually_within(Duration::from_secs(20), "munged listens", || {
            fs::metadata(path("munge.sock"))
        });
        daemons.push(ChildProcess::start(&mut slurmctld));
        for number in 1..=NODES {
            let mut slurmd = Command::new("slurmd");
            slurmd.args(["-D", "-N", &format!("n{number}"), "-f", &path("slurm.conf")]);
            daemons.push(ChildProcess::start(&mut slurmd));
        }
        cluster._daemons = daemons;
        eventually_within(
            Duration::from_secs(60),
            "all nodes of Slurm are idle",
            || {
                let listed = cluster
                    .command("sinfo")
                    .args(["-h", "-o", "%D %T"])
                    .output();
                let text = String::from_utf8_lossy(&listed.expect("it starts").stdout).into_owned();
                (text.trim() == format!("{NODES} idle"))
                    .then_some(())
                    .ok_or(text)
            },
        );
        Some(cluster)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.dir.join("slurm.conf"));
        command
    }
}

const CGROUP_CONFIGURATION: &str = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n\
    ConstrainCores=yes\nConstrainRAMSpace=yes\n";

fn configuration(dir: &TempDir, tracking: ProcessTracking) -> String {
    let plugins = match tracking {
        ProcessTracking::Parents => {
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             JobAcctGatherType=jobacct_gather/none\nSelectTypeParameters=CR_CPU\n"
        }
        ProcessTracking::Cgroups => {
            "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\n\
             JobAcctGatherType=jobacct_gather/cgroup\nSelectTypeParameters=CR_CPU_Memory\n"
        }
    };
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let listeners: Vec<TcpListener> = (0..=NODES)
        .map(|_| TcpListener::bind("127.0.0.1:0").expect("bound"))
        .collect();
    let ports: Vec<u16> = listeners
        .iter()
        .map(|listener| listener.local_addr().expect("an address").port())
        .collect();
    let dir = dir.path().display();
    let mut text = format!(
        "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nSlurmUser=root\n\
         SlurmdUser=root\nAuthType=auth/munge\nAuthInfo=socket={dir}/munge.sock\n\
         CredType=cred/munge\nStateSaveLocation={dir}/state\nSlurmdSpoolDir={dir}/spool/%n\n\
         SlurmctldPidFile={dir}/ctld.pid\nSlurmdPidFile={dir}/d-%n.pid\n\
         {plugins}SelectType=select/cons_tres\nReturnToService=2\n\
         AccountingStorageType=accounting_storage/none\nMpiDefault=none\nSwitchType=switch/none\n",
        ports[0]
    );
    for (number, port) in ports.iter().enumerate().skip(1) {
        text.push_str(&format!(
            "NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs=2 \
             RealMemory=500 State=UNKNOWN\n",
            port
        ));
    }
    text + "PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
}

#[test]
fn slurm_starts_an_agent_on_every_node_of_the_allocation() {
    let Some(cluster) = SlurmCluster::start(ProcessTracking::Parents) else {
        return;
    };
    let job = TestJob::new();
    let script = format!(
        "{BEGIN}{PEGEL} nodes --check && srun --overlap -N3 -n3 --mem=0 \
         sh -c 'echo task $SLURMD_NODENAME; {PEGEL} push tasks=1 -t counter'"
    );
    // As in a shell of salloc: the head is not one of the nodes; as in a batch script: it is.
    for (own, nodes) in [("", "3 nodes"), ("n1", "3 nodes")] {
        let inner = job.command(&["--out", &format!("out{own}")], &["sh", "-c", &script]);
        let mut salloc = cluster.command("salloc");
        salloc
            .args(["-Q", "-N3"])
            .arg(inner.get_program())
            .args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => salloc.env(name, value),
                None => salloc.env_remove(name),
            };
        }
        if !own.is_empty() {
            salloc.env("SLURMD_NODENAME", own);
        }
        salloc
            .env_remove("PEGEL_LANES")
            .current_dir(job.home.path());
        let ended = ChildProcess::start(&mut salloc).wait(JOB_TIME);
        assert_eq!(ended.code(), Some(0), "{ended}");
        assert!(
            ended.stderr.contains("pegel: 3 of 3 nodes up in "),
            "{ended}"
        );
        assert!(ended.stderr.contains(nodes), "{ended}");
        for node in ["n1", "n2", "n3"] {
            assert!(ended.stdout.contains(&format!("task {node}\n")), "{ended}");
            assert!(
                job.home.join(format!("out{own}")).join(node).is_dir(),
                "{node}: {ended}"
            );
        }
        job.leaves_nothing("");
    }
    let mut queue = cluster.command("squeue");
    let listed = queue.arg("-h").output().expect("it starts");
    assert!(listed.stdout.is_empty(), "{listed:?}");
}

#[test]
fn a_failure_of_srun_is_reported_in_its_own_words() {
    let Some(cluster) = SlurmCluster::start(ProcessTracking::Parents) else {
        return;
    };
    let job = TestJob::new();
    let mut command = job.command(&[], &["touch", "ran"]);
    command.env("SLURM_CONF", cluster.dir.join("slurm.conf"));
    // An allocation that does not exist.
    command
        .env("SLURM_JOB_NODELIST", "n[1-3]")
        .env("SLURM_JOB_ID", "4242");
    let ended = ChildProcess::start(&mut command).wait(JOB_TIME);
    assert_eq!(ended.code(), Some(2), "{ended}");
    assert!(ended.stderr.contains("srun: error: "), "{ended}");
    assert!(!job.home.join("ran").exists());
    job.leaves_nothing("");
}

#[test]
fn jobs_of_slurms_own_cgroups_are_listed_with_their_figures() {
    let has_v1 = ["freezer", "memory", "cpuset", "cpuacct"]
        .iter()
        .all(|controller| Path::new("/sys/fs/cgroup").join(controller).is_dir());
    if need_hardware(has_v1, "cgroups of version 1").is_none() {
        return;
    }
    let Some(cluster) = SlurmCluster::start(ProcessTracking::Cgroups) else {
        return;
    };
    let agent = PEGEL.agent().start();
    // Filled pages count, and a second of CPU time.
    let script = "x = bytearray(60 << 20); import time; end = time.process_time() + 1\n\
                  while time.process_time() < end: pass";
    let mut long = cluster.command("srun");
    long.args(["-wn1", "-n1", "--mem=100", "python3", "-c", script]);
    let ended = ChildProcess::start(&mut long).wait(JOB_TIME);
    assert_eq!(ended.code(), Some(0), "{ended}");
    for _ in 0..5 {
        let mut short = cluster.command("srun");
        short.args(["-wn1", "-n1", "--mem=10", "sleep", "0.2"]);
        let ended = ChildProcess::start(&mut short).wait(JOB_TIME);
        assert_eq!(ended.code(), Some(0), "{ended}");
    }
    let jobs = eventually_within(JOB_TIME, "all jobs ended", || {
        // The machine may run other jobs.
        let own = |job: &Value| {
            job["on_nodes"][0]["cgroup"]
                .to_string()
                .contains("slurm_n1")
        };
        let jobs = agent.get("/api/v1/jobs").json()["jobs"].clone();
        let listed = jobs.as_array().cloned().unwrap_or_default();
        let listed: Vec<Value> = listed.into_iter().filter(own).collect();
        let are_over = listed.iter().all(|job| job["state"] == "ended");
        (listed.len() == 6 && are_over)
            .then_some(listed)
            .ok_or(jobs)
    });
    for job in &jobs {
        assert_eq!(job["scheduler"], "slurm", "{job}");
        assert_eq!(job["uid"], 0, "{job}");
        assert!(job["cpu_seconds"].is_number(), "{job}");
        assert!(job["memory_peak"].is_number(), "{job}");
        assert_eq!(job["cpus"], 1, "{job}");
    }
    let first = { jobs.iter() }
        .find(|job| job["job"] == "1")
        .expect("the first job");
    let number = |name: &str| first[name].as_f64().expect(name);
    assert!(number("memory_peak") >= f64::from(60 << 20), "{first}");
    assert_eq!(number("memory_limit"), f64::from(100 << 20), "{first}");
    // The last reading is at three quarters of its time or later.
    assert!(number("cpu_seconds") > 0.3, "{first}");
}
