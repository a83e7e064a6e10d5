//! Counting MPI calls with the preloaded library, on real Open MPI and real MPICH.

mod launch;
mod stuck;
mod summary;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use launch::{MpiCount, MpiLibrary, MpiRun, add, assert_same, sources};
use pegel_testkit::{ChildProcess, eventually_within, need};
use rustix::process::{Pid, Signal, kill_process};

use crate::PEGEL;

const BOUND: Duration = Duration::from_secs(60);

fn expect(ranks: u64, calls: &[(&str, u64, u64)]) -> BTreeMap<String, MpiCount> {
    let count = |&(name, hits, bytes): &(&str, u64, u64)| {
        let count = MpiCount {
            hits: ranks * hits,
            bytes: ranks * bytes,
            nanos: 0,
        };
        (name.to_owned(), count)
    };
    calls.iter().map(count).collect()
}

#[test]
fn every_family_of_calls_is_counted_as_the_program_counts_itself() {
    for library in MpiLibrary::BOTH {
        let Some(first) = MpiRun::new(library) else {
            return;
        };
        let Some(program) = first.compile("mpicc", "families.c", &[]) else {
            return;
        };
        for ranks in 2..=4 {
            let Some(scene) = MpiRun::new(library) else {
                return;
            };
            scene.run(ranks, &[], &[&program]);
            let (counted, expected) = (scene.counted(), scene.expected(ranks));
            // The minimum of each family, so that the program cannot lose one unnoticed.
            assert!(
                expected.len()
                    >= if library == MpiLibrary::Mpich {
                        258
                    } else {
                        163
                    }
            );
            assert_same(&counted, &expected);
            assert!(
                counted["MPI_Init"].nanos > 1_000_000,
                "{:?}",
                counted["MPI_Init"]
            );
            assert!(counted["MPI_Barrier"].nanos > 0 && counted["MPI_Comm_rank"].nanos == 0);
        }
    }
}

#[test]
fn fortran_counts_once_by_all_three_bindings() {
    for library in MpiLibrary::BOTH {
        for binding in 1..=3 {
            let Some(scene) = MpiRun::new(library) else {
                return;
            };
            let flags = [
                "-cpp",
                &format!("-DBINDING={binding}"),
                "-w",
                "-fallow-argument-mismatch",
                "-ffree-line-length-none",
            ];
            let Some(program) = scene.compile("mpif90", "bindings.F90", &flags) else {
                return;
            };
            scene.run(3, &[], &[&program]);
            let expected = [
                ("MPI_Allreduce", 1, 24),
                ("MPI_Alltoallv", 1, 48),
                ("MPI_Barrier", 1, 0),
                ("MPI_Bcast", 2, 44),
                ("MPI_Cart_create", 1, 0),
                ("MPI_Cart_rank", 1, 0),
                ("MPI_Comm_dup", 1, 0),
                ("MPI_Comm_free", 2, 0),
                ("MPI_Comm_get_attr", 1, 0),
                ("MPI_Comm_get_name", 1, 0),
                ("MPI_Comm_rank", 1, 0),
                ("MPI_Comm_set_name", 1, 0),
                ("MPI_Comm_size", 1, 0),
                ("MPI_File_close", 1, 0),
                ("MPI_File_open", 1, 0),
                ("MPI_File_read_at", 1, 80),
                ("MPI_File_write_at", 1, 80),
                ("MPI_Finalize", 1, 0),
                ("MPI_Get_count", 1, 0),
                ("MPI_Get_processor_name", 1, 0),
                ("MPI_Init", 1, 0),
                ("MPI_Irecv", 1, 80),
                ("MPI_Isend", 3, 216),
                ("MPI_Recv", 2, 136),
                ("MPI_Type_commit", 1, 0),
                ("MPI_Type_contiguous", 1, 0),
                ("MPI_Type_free", 1, 0),
                ("MPI_Wait", 2, 0),
                ("MPI_Waitall", 1, 0),
            ];
            assert_same(&scene.counted(), &expect(3, &expected));
        }
    }
}

#[test]
fn python_is_counted_although_it_loads_mpi_privately() {
    let Some(scene) = MpiRun::new(MpiLibrary::OpenMpi) else {
        return;
    };
    // The system's Python, which has the package.
    let python = Path::new("/usr/bin/python3");
    let mut import = Command::new(python);
    let has_package = import.args(["-c", "import mpi4py"]).status();
    if !has_package.is_ok_and(|status| status.success()) {
        let _ = need("python3-mpi4py");
        return;
    }
    scene.run(3, &[], &[python, &sources().join("buffers.py")]);
    let mut counted = scene.counted();
    let expected = expect(
        3,
        &[
            ("MPI_Isend", 1, 80),
            ("MPI_Recv", 1, 80),
            ("MPI_Wait", 1, 0),
            ("MPI_Allreduce", 5, 120),
            ("MPI_Bcast", 1, 80),
            ("MPI_Alltoallv", 1, 48),
            ("MPI_Barrier", 1, 0),
            ("MPI_Finalize", 1, 0),
        ],
    );
    assert!(counted.contains_key("MPI_Init_thread"));
    // mpi4py makes more calls of its own.
    counted.retain(|name, _| expected.contains_key(name));
    assert_same(&counted, &expected);
}

#[test]
fn threads_that_call_at_once_lose_nothing() {
    for library in MpiLibrary::BOTH {
        let Some(scene) = MpiRun::new(library) else {
            return;
        };
        let Some(program) = scene.compile("mpicc", "threads.c", &["-pthread"]) else {
            return;
        };
        scene.run(2, &[], &[&program]);
        assert_same(&scene.counted(), &scene.expected(2));
    }
}

#[test]
fn the_sessions_model_is_counted_like_the_world_model() {
    // Open MPI has no sessions before version 5.
    let Some(scene) = MpiRun::new(MpiLibrary::Mpich) else {
        return;
    };
    let Some(program) = scene.compile("mpicc", "session.c", &[]) else {
        return;
    };
    scene.run(2, &[], &[&program]);
    assert_same(&scene.counted(), &scene.expected(2));
}

/// Waits until every rank has made some calls; returns the process IDs of the ranks.
fn ranks_at_work(scene: &MpiRun, ranks: usize) -> Vec<(String, Pid)> {
    eventually_within(BOUND, "all ranks are at work", || {
        let mut found = Vec::new();
        for lane in &mut scene.lanes() {
            let mut sums = BTreeMap::new();
            add(lane, &mut sums);
            let calls = sums.get("MPI_Allreduce").map_or(0, |count| count.hits);
            if calls > 1000 {
                let pid = Pid::from_raw(lane.header().pid as i32).ok_or("no pid")?;
                found.push((lane.header().rank.clone(), pid));
            }
        }
        if found.len() == ranks {
            Ok(found)
        } else {
            Err("not yet")
        }
    })
}

/// Returns the last number that a rank of `endless.c` reported.
fn done(scene: &MpiRun, rank: &str) -> u64 {
    let bytes = std::fs::read(scene.dir.join(format!("counts.{rank}"))).expect("written");
    u64::from_ne_bytes(bytes.try_into().expect("one number"))
}

#[test]
fn counts_before_kill_9_are_kept() {
    for library in MpiLibrary::BOTH {
        for kills_all in [false, true] {
            let Some(scene) = MpiRun::new(library) else {
                return;
            };
            let Some(program) = scene.compile("mpicc", "endless.c", &[]) else {
                return;
            };
            let process = ChildProcess::start(&mut scene.mpirun(3, &[], &[&program]));
            let ranks = ranks_at_work(&scene, 3);
            let victims = if kills_all { &ranks[..] } else { &ranks[..1] };
            for (_, pid) in victims {
                kill_process(*pid, Signal::KILL).expect("ours");
            }
            // The launcher ends the others.
            let finished = process.wait(BOUND);
            assert!(!finished.status.success());
            for lane in &mut scene.lanes() {
                let rank = lane.header().rank.clone();
                let mut sums = BTreeMap::new();
                add(lane, &mut sums);
                let (count, done) = (sums["MPI_Allreduce"], done(&scene, &rank));
                assert!(
                    (done..=done + 1).contains(&count.hits),
                    "{library:?} rank {rank}: {count:?}, did {done}"
                );
                assert!(
                    (8 * done..=8 * (done + 1)).contains(&count.bytes),
                    "{count:?}"
                );
                assert_eq!(sums["MPI_Init"].hits, 1);
            }
        }
    }
}

#[test]
fn another_preloaded_tool_still_sees_the_calls() {
    for library in MpiLibrary::BOTH {
        let Some(scene) = MpiRun::new(library) else {
            return;
        };
        let Some(program) = scene.compile("mpicc", "plain.c", &[]) else {
            return;
        };
        let Some(tool) = scene.compile("mpicc", "tool.c", &["-shared", "-fPIC"]) else {
            return;
        };
        for order in [[&tool, &scene.preload], [&scene.preload, &tool]] {
            let Some(run) = MpiRun::new(library) else {
                return;
            };
            let both = format!("{}:{}", order[0].display(), order[1].display());
            let finished = run.run(2, &[("LD_PRELOAD", &both)], &[&program]);
            let seen = finished.stdout.matches("the tool saw 10\n").count();
            assert_eq!(seen, 2, "{library:?}: {finished}");
            let counted = run.counted();
            assert_eq!(
                (counted["MPI_Send"].hits, counted["MPI_Send"].bytes),
                (20, 160)
            );
            assert_eq!(counted["MPI_Finalize"].hits, 2);
        }
    }
}

#[test]
fn a_program_that_is_not_counted_runs_as_if_alone() {
    for library in MpiLibrary::BOTH {
        let Some(scene) = MpiRun::new(library) else {
            return;
        };
        let Some(program) = scene.compile("mpicc", "plain.c", &[]) else {
            return;
        };
        let alone = scene.run(2, &[("LD_PRELOAD", "")], &[&program]);
        assert_eq!(scene.lanes().len(), 0);
        let off = scene.run(2, &[("PEGEL_DISABLE", "1")], &[&program]);
        assert_eq!(scene.lanes().len(), 0);
        // A directory in which no lane can be created.
        let nowhere = scene.run(2, &[("PEGEL_LANES", "/proc/no/such/place")], &[&program]);
        let counted = scene.run(2, &[], &[&program]);
        for other in [off, nowhere, counted] {
            assert_eq!(
                (&alone.stdout, &alone.stderr),
                (&other.stdout, &other.stderr)
            );
        }
        assert_eq!(scene.counted()["MPI_Send"].hits, 20);
    }
}

#[test]
fn an_aborting_program_is_counted_to_the_end() {
    for library in MpiLibrary::BOTH {
        let Some(scene) = MpiRun::new(library) else {
            return;
        };
        let Some(program) = scene.compile("mpicc", "plain.c", &[]) else {
            return;
        };
        let mut command = scene.mpirun(2, &[], &[&program, Path::new("abort")]);
        let finished = ChildProcess::start(&mut command).wait(BOUND);
        assert_eq!(finished.status.code(), Some(3), "{finished}");
        let counted = scene.counted();
        // One rank may end the other before that.
        assert!((1..=2).contains(&counted["MPI_Abort"].hits), "{counted:?}");
        assert_eq!(counted["MPI_Send"].hits, 20);
    }
}

#[test]
fn an_exception_passes_through_and_counting_goes_on() {
    for library in MpiLibrary::BOTH {
        let Some(scene) = MpiRun::new(library) else {
            return;
        };
        let Some(program) = scene.compile("mpicxx", "throws.cc", &[]) else {
            return;
        };
        let finished = scene.run(1, &[], &[&program]);
        assert_eq!(finished.stdout, "caught 3\n");
        // Calls that ended with an exception did not return.
        let send = scene.counted()["MPI_Send"];
        assert_eq!((send.hits, send.bytes), (5, 40), "{library:?}");
    }
}

#[test]
fn labels_are_added_when_asked_for() {
    let Some(scene) = MpiRun::new(MpiLibrary::OpenMpi) else {
        return;
    };
    let Some(program) = scene.compile("mpicc", "plain.c", &[]) else {
        return;
    };
    scene.run(2, &[("PEGEL_LABELS", "rank")], &[&program]);
    let mut ranks = Vec::new();
    for lane in &mut scene.lanes() {
        let mut buffer = Vec::new();
        let view = lane.read(&mut buffer).expect("readable");
        let series = view.series(0).expect("described");
        assert!(series.with_rank && !series.with_pid);
        ranks.push(lane.header().rank.clone());
    }
    ranks.sort();
    assert_eq!(ranks, ["0", "1"]);
}

#[test]
fn the_agent_sums_the_ranks_of_a_job() {
    let Some(scene) = MpiRun::new(MpiLibrary::Mpich) else {
        return;
    };
    let Some(program) = scene.compile("mpicc", "plain.c", &[]) else {
        return;
    };
    let agent = PEGEL
        .agent()
        .dir(scene.dir.join("store"))
        .env("PEGEL_LANES", scene.dir.join("lanes"))
        .config("rate: 100ms\n")
        .start();
    scene.run(3, &[("PEGEL_JOB", "4711")], &[&program]);
    let metrics = agent.get("/metrics");
    let text = metrics.text();
    for line in [
        "mpi_hits_total{call=\"MPI_Send\",jobid=\"4711\"} 30\n",
        "mpi_size_total{call=\"MPI_Send\",jobid=\"4711\"} 240\n",
        "mpi_hits_total{call=\"MPI_Allreduce\",jobid=\"4711\"} 3\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let time = "mpi_time_total{call=\"MPI_Init\",jobid=\"4711\"} ";
    let after = text.split(time).nth(1).and_then(|rest| rest.lines().next());
    let seconds: f64 = after.and_then(|text| text.parse().ok()).expect("a time");
    assert!((0.001..60.0).contains(&seconds), "{seconds} s");
}

#[test]
fn the_wrapper_installs_the_library() {
    for library in [MpiLibrary::OpenMpi, MpiLibrary::Mpich] {
        let Some(scene) = MpiRun::new(library) else {
            return;
        };
        let Some(program) = scene.compile("mpicc", "plain.c", &[]) else {
            return;
        };
        let words = ["run", "-m", "--"].map(Path::new);
        let command = [&[Path::new(PEGEL.path())][..], &words, &[&*program]].concat();
        // Not preloaded by the test: the wrapper does that.
        scene.run(
            2,
            &[
                ("LD_PRELOAD", ""),
                ("XDG_RUNTIME_DIR", &scene.dir.path().to_string_lossy()),
            ],
            &command,
        );
        let counted = scene.counted();
        let sends = counted.get("MPI_Send").map(|count| count.hits);
        assert_eq!(sends, Some(20), "{library:?}: {counted:?}");
    }
}

#[test]
fn the_library_changes_nothing_for_programs_without_mpi() {
    let Some(scene) = MpiRun::new(MpiLibrary::OpenMpi) else {
        return;
    };
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo said; exit 7"])
        .env("LD_PRELOAD", &scene.preload)
        .env("PEGEL_LANES", scene.dir.join("lanes"));
    let finished = ChildProcess::start(&mut command).wait(BOUND);
    assert_eq!(finished.status.code(), Some(7));
    assert_eq!(
        (finished.stdout.as_str(), finished.stderr.as_str()),
        ("said\n", "")
    );
    assert_eq!(scene.lanes().len(), 0);
}
