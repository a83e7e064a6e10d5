//! `pegel stuck` on programs that hang, with real Open MPI and real MPICH: the rank for which the
//! others wait is named, by call and number.

use std::path::Path;

use pegel_lane::reader::{LaneDirectoryHandle, ProcessState};
use pegel_testkit::{AgentProcess, ChildProcess, OtherUser, eventually_within};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::BOUND;
use super::launch::{MpiLibrary, MpiRun};
use crate::PEGEL;

/// The configuration of the agent, except where a test needs another.
const DEFAULTS: &str = "rate: 500ms\n";

/// A program that hangs, and the agent that watches it.
struct HungProgram {
    agent: AgentProcess,
    scene: MpiRun,
    _launcher: ChildProcess,
}

impl HungProgram {
    /// Starts the program in a way to hang.
    #[track_caller]
    fn start(library: MpiLibrary, ranks: usize, way: &str) -> Option<HungProgram> {
        let scene = MpiRun::new(library)?;
        let program = scene.compile("mpicc", "hangs.c", &[])?;
        Some(HungProgram::start_program(
            scene,
            ranks,
            &[&program, Path::new(way)],
            DEFAULTS,
        ))
    }

    fn start_program(scene: MpiRun, ranks: usize, program: &[&Path], yaml: &str) -> HungProgram {
        let agent = PEGEL
            .agent()
            .env("PEGEL_LANES", scene.dir.join("lanes"))
            .config(yaml)
            .start();
        // Launchers end all ranks if one is killed: each has a shell that stays until the test
        // ends.
        let script = "\"$0\" \"$@\"; while [ -e lanes ]; do sleep 0.2; done";
        let shell = ["sh", "-c", script].map(Path::new);
        let words: Vec<&Path> = shell.iter().chain(program).copied().collect();
        let mut command = scene.mpirun(ranks, &[], &words);
        let launcher = ChildProcess::start(&mut command);
        HungProgram {
            agent,
            scene,
            _launcher: launcher,
        }
    }

    /// Waits until the first finding contains all texts; returns the job.
    #[track_caller]
    fn finds(&self, texts: &[&str]) -> Value {
        eventually_within(BOUND, "the finding", || {
            let finished = self
                .agent
                .client(&["stuck", "--after", "0.5", "-f", "json"]);
            if finished.code() != Some(1) {
                return Err(format!("{finished}"));
            }
            let answer: Value = serde_json::from_str(&finished.stdout).expect("JSON");
            let job = answer["jobs"][0].clone();
            let lines = job["findings"][0]["lines"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
            let text = lines.join("\n");
            match texts.iter().find(|wanted| !text.contains(**wanted)) {
                None => Ok(job),
                Some(missing) => Err(format!("no {missing:?} in {text}\n{job:#}")),
            }
        })
    }

    fn missing(job: &Value) -> Vec<u64> {
        let ranks = job["findings"][0]["missing"].as_array().cloned();
        ranks
            .unwrap_or_default()
            .iter()
            .filter_map(Value::as_u64)
            .collect()
    }
}

impl Drop for HungProgram {
    fn drop(&mut self) {
        // Stopped ranks do not end with their launcher.
        let directory = LaneDirectoryHandle::open(self.scene.dir.join("lanes")).expect("there");
        let lanes = directory.list(1000).expect("readable").lanes;
        let lanes = lanes.iter().filter(|lane| !lane.is_temporary);
        for lane in
            lanes.filter_map(|lane| directory.open_lane(&lane.name, &Default::default()).ok())
        {
            if lane.process() == ProcessState::Alive
                && let Some(pid) = Pid::from_raw(lane.header().pid as i32)
            {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Runs a test of one way to hang with both libraries.
fn each_library(ranks: usize, way: &str, check: impl Fn(MpiLibrary, &HungProgram)) {
    for library in MpiLibrary::BOTH {
        let Some(hung) = HungProgram::start(library, ranks, way) else {
            return;
        };
        check(library, &hung);
    }
}

#[test]
fn a_rank_that_skips_a_collective_is_named() {
    each_library(4, "skip", |library, hung| {
        let job = hung.finds(&[
            "3 ranks in MPI_Barrier #2 (MPI_COMM_WORLD) for ",
            "is in MPI_Recv with rank 0 (tag 7) for ",
            ", its last collective was #1 MPI_Bcast",
        ]);
        assert_eq!(HungProgram::missing(&job), [1], "{library:?}: {job:#}");
        assert_eq!(
            (&job["size"], &job["command"]),
            (&4.into(), &"hangs-c".into())
        );
        let text = hung.agent.client(&["stuck", "--after", "0.5", "--ranks"]);
        let node = hung.agent.status()["node"]
            .as_str()
            .expect("a name")
            .to_owned();
        let named = format!("; rank 1 on {node} is in MPI_Recv");
        assert!(text.stdout.contains(&named), "{text}");
        assert!(
            text.stderr.contains("ranks of 1 of 1 MPI programs wait"),
            "{text}"
        );
        // No rank has been waiting for an hour.
        let patient = hung.agent.client(&["stuck", "--after", "3600"]);
        assert_eq!(patient.code(), Some(0), "{patient}");
        let other = hung.agent.client(&["stuck", "--job", "no-such-job"]);
        assert_eq!(other.code(), Some(4), "{other}");
    });
}

#[test]
fn a_stopped_rank_is_named() {
    each_library(3, "stop", |library, hung| {
        let job = hung.finds(&[
            "2 ranks in MPI_Allreduce #3 (MPI_COMM_WORLD)",
            "rank 1 on ",
            " is outside MPI for ",
            "the process is stopped by a signal",
            "its last collective was #2 MPI_Allreduce",
        ]);
        assert_eq!(HungProgram::missing(&job), [1], "{library:?}: {job:#}");
        assert_eq!(job["ranks"][1]["state"], "T");
    });
}

#[test]
fn a_rank_that_sleeps_uninterruptibly_is_named() {
    each_library(3, "blocked", |library, hung| {
        let job = hung.finds(&[
            "2 ranks in MPI_Allreduce #3 (MPI_COMM_WORLD)",
            "rank 1 on ",
            "uninterruptible",
            "its last collective was #2 MPI_Allreduce",
        ]);
        assert_eq!(HungProgram::missing(&job), [1], "{library:?}: {job:#}");
        assert_eq!(job["ranks"][1]["state"], "D");
    });
}

#[test]
fn a_rank_that_spins_is_named() {
    each_library(3, "spin", |library, hung| {
        let job = hung.finds(&[
            "2 ranks in MPI_Allreduce #3 (MPI_COMM_WORLD)",
            "rank 2 on ",
            "its last collective was #2 MPI_Allreduce",
        ]);
        assert_eq!(HungProgram::missing(&job), [2], "{library:?}: {job:#}");
        assert!(
            job["ranks"][2]["text"]
                .as_str()
                .is_some_and(|text| text.starts_with("outside MPI"))
        );
        // The others must have waited for a while.
        eventually_within(BOUND, "the late rank", || {
            let job = hung.finds(&["2 ranks in MPI_Allreduce #3"]);
            (job["late"]["rank"] == 2).then_some(()).ok_or(job)
        });
    });
}

#[test]
fn a_killed_rank_is_named() {
    each_library(3, "kill", |library, hung| {
        let job = hung.finds(&[
            "2 ranks in MPI_Allreduce #3 (MPI_COMM_WORLD)",
            "rank 1 on ",
            "is gone: it ended without MPI_Finalize, outside MPI",
            "its last collective was #2 MPI_Allreduce",
        ]);
        assert_eq!(HungProgram::missing(&job), [1], "{library:?}: {job:#}");
        assert_eq!(job["ranks"][1]["has_ended"], true);
    });
}

#[test]
fn collectives_in_different_order_are_named() {
    each_library(4, "order", |library, hung| {
        let job = hung.finds(&[
            "3 ranks in MPI_Barrier #2 (MPI_COMM_WORLD)",
            "collectives in different order on MPI_COMM_WORLD: #2 is MPI_Barrier on ranks 0, 1 and 3 \
             and MPI_Allreduce on rank 2",
        ]);
        assert_eq!(HungProgram::missing(&job), [2], "{library:?}: {job:#}");
        assert_eq!(job["findings"][0]["is_order_mismatch"], true);
    });
}

#[test]
fn a_rank_is_named_on_a_derived_communicator() {
    each_library(4, "derived", |library, hung| {
        let job = hung.finds(&[
            "1 rank in MPI_Allreduce #3 (comm ",
            "rank 3 on ",
            "its last collective was #2 MPI_Barrier",
            "2 ranks, first rank 2, by MPI_Comm_dup #1 on a freed communicator",
        ]);
        assert_eq!(HungProgram::missing(&job), [3], "{library:?}: {job:#}");
    });
}

#[test]
fn a_rank_that_does_not_begin_a_non_blocking_collective_is_named() {
    each_library(3, "nonblocking", |library, hung| {
        let job = hung.finds(&[
            "2 ranks in MPI_Waitall for MPI_Iallreduce #3 (MPI_COMM_WORLD)",
            "rank 0 on ",
            "its last collective was #2 MPI_Ibarrier",
        ]);
        assert_eq!(HungProgram::missing(&job), [0], "{library:?}: {job:#}");
    });
}

#[test]
fn a_rank_that_polls_for_a_collective_waits_for_it() {
    each_library(3, "polls", |library, hung| {
        let job = hung.finds(&[
            "2 ranks in ",
            " for MPI_Ibarrier #2 (MPI_COMM_WORLD)",
            "rank 1 on ",
        ]);
        assert_eq!(HungProgram::missing(&job), [1], "{library:?}: {job:#}");
    });
}

#[test]
fn a_rank_that_does_not_finalize_is_named() {
    each_library(3, "finalize", |library, hung| {
        let job = hung.finds(&[
            "2 ranks in MPI_Finalize for ",
            "rank 1 on ",
            "is outside MPI",
        ]);
        assert_eq!(HungProgram::missing(&job), [1], "{library:?}: {job:#}");
    });
}

#[test]
fn a_persistent_collective_that_one_rank_does_not_start_is_found() {
    // Open MPI has them from version 5 on.
    let Some(hung) = HungProgram::start(MpiLibrary::Mpich, 3, "persistent") else {
        return;
    };
    let job = hung.finds(&[
        "2 ranks in MPI_Wait for MPI_Allreduce_init #2, start 3 (MPI_COMM_WORLD)",
        "rank 0 on ",
    ]);
    assert_eq!(HungProgram::missing(&job), [0], "{job:#}");
}

#[test]
fn fortran_is_seen_like_c() {
    for library in MpiLibrary::BOTH {
        let Some(scene) = MpiRun::new(library) else {
            return;
        };
        let Some(program) = scene.compile("mpif90", "hangs.f90", &[]) else {
            return;
        };
        let hung = HungProgram::start_program(scene, 3, &[&program], DEFAULTS);
        let job = hung.finds(&[
            "2 ranks in MPI_Barrier #2 (comm 1)",
            "rank 1 on ",
            "is in MPI_Recv with rank 0 (tag 7, comm 1)",
            "comm 1: 3 ranks, first rank 0, by MPI_Comm_dup #1 on MPI_COMM_WORLD",
        ]);
        assert_eq!(HungProgram::missing(&job), [1], "{library:?}: {job:#}");
    }
}

#[test]
fn a_program_that_ended_well_is_not_shown_as_stuck() {
    for library in MpiLibrary::BOTH {
        let Some(scene) = MpiRun::new(library) else {
            return;
        };
        let Some(program) = scene.compile("mpicc", "hangs.c", &[]) else {
            return;
        };
        let agent = PEGEL
            .agent()
            .env("PEGEL_LANES", scene.dir.join("lanes"))
            .start();
        scene.run(3, &[], &[&program, Path::new("late")]);
        let job = eventually_within(BOUND, "all ranks are done", || {
            let answer = agent.get("/api/v1/mpi?after=0.1").json();
            let ranks = answer["jobs"][0]["ranks"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let is_done = |rank: &Value| rank["phase"] == "finalized";
            match ranks.len() == 3 && ranks.iter().all(is_done) {
                true => Ok(answer["jobs"][0].clone()),
                false => Err(format!("{answer:#}")),
            }
        });
        assert_eq!(job["is_stuck"], false, "{job:#}");
        let seconds = |rank: usize| job["ranks"][rank]["collective_seconds"].as_f64();
        assert!(seconds(0) < seconds(1), "rank 0 waits least: {job:#}");
    }
}

/// Returns an address on loopback that no other test uses.
fn parent_address() -> String {
    let [_, high, middle, low] = (std::process::id() % (1 << 22)).to_be_bytes();
    format!("127.{}.{middle}.{low}:1339", high + 64)
}

#[test]
fn the_head_of_a_tree_compares_the_ranks_of_all_nodes() {
    let Some(scene) = MpiRun::new(MpiLibrary::OpenMpi) else {
        return;
    };
    let Some(program) = scene.compile("mpicc", "hangs.c", &[]) else {
        return;
    };
    let address = parent_address();
    let head = PEGEL
        .agent()
        .config(&format!("node: head\ntree: {{accept: \"{address}\"}}\n"))
        .start();
    let node = |name: &str| {
        let yaml = format!("node: {name}\ntree: {{parents: [\"{address}\"]}}\n");
        let lanes = scene.dir.join(format!("lanes/{name}"));
        std::fs::create_dir(&lanes).expect("made");
        PEGEL
            .agent()
            .env("PEGEL_LANES", lanes)
            .config(&yaml)
            .start()
    };
    let (_first, _second) = (node("n1"), node("n2"));
    let script = "[ $OMPI_COMM_WORLD_RANK -lt 2 ] && node=n1 || node=n2; \
                  PEGEL_LANES=$PWD/lanes/$node exec \"$0\" \"$@\"";
    let words = ["sh", "-c", script].map(Path::new);
    let words = [&words[..], &[&program, Path::new("skip")]].concat();
    let launcher = ChildProcess::start(&mut scene.mpirun(4, &[], &words));
    let text = eventually_within(BOUND, "the finding", || {
        let finished = head.client(&["stuck", "--after", "0.5"]);
        match finished.stdout.contains("; rank 1 on n1 is in MPI_Recv") {
            true => Ok(finished.stdout),
            false => Err(format!("{finished}")),
        }
    });
    assert!(text.contains("hangs-c: 4 ranks on 2 nodes\n"), "{text}");
    assert!(
        text.contains("  3 ranks in MPI_Barrier #2 (MPI_COMM_WORLD) for "),
        "{text}"
    );
    launcher.signal(Signal::TERM);
    launcher.wait(BOUND);
}

#[test]
fn users_see_the_ranks_of_their_own_programs_only() {
    let Some(other) = OtherUser::new() else {
        return;
    };
    let Some(scene) = MpiRun::new(MpiLibrary::Mpich) else {
        return;
    };
    let Some(program) = scene.compile("mpicc", "hangs.c", &[]) else {
        return;
    };
    let yaml = format!("allow_users: [{}]\n", OtherUser::UID);
    let program = [&program, Path::new("skip")];
    let hung = HungProgram::start_program(scene, 2, &program, &yaml);
    let job = hung.finds(&["1 rank in MPI_Barrier #2"]);
    assert_eq!(job["ranks"].as_array().map(Vec::len), Some(2));
    let url = format!("http://{}/api/v1/mpi", hung.agent.http());
    let (status, output) = other.curl(&[&url]);
    assert_eq!(status, 200, "{output}");
    assert!(output.contains("\"jobs\":[]"), "{output}");
}
