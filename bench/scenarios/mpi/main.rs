//! The overhead of the preloaded library per MPI call, compared with the same program without it in the same run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use pegel_bench::{BenchReport, FigureGate, median};
use pegel_testkit::{TempDir, need};

const LIBRARIES: [(&str, &str); 2] = [("Open MPI", "openmpi"), ("MPICH", "mpich")];

fn main() -> ExitCode {
    let mut report = BenchReport::new("mpi");
    for (name, package) in LIBRARIES {
        let dir = TempDir::new();
        let Some(program) = compile(&dir, package) else {
            continue;
        };
        for (level, budget) in [("single", 20.0), ("multiple", 35.0)] {
            measure(&mut report, &dir, &program, (name, level, budget));
        }
    }
    report.finish()
}

fn compile(dir: &TempDir, package: &str) -> Option<PathBuf> {
    let compiler = need(&format!("mpicc.{package}"))?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/mpi/loop.c");
    let program = dir.join("loop");
    let mut command = Command::new(compiler);
    command.args(["-O2", "-o"]).arg(&program).arg(source);
    let status = command.status().expect("a compiler");
    assert!(status.success(), "{command:?}: {status}");
    Some(program)
}

fn measure(report: &mut BenchReport, dir: &TempDir, program: &Path, case: (&str, &str, f64)) {
    let (name, level, budget) = case;
    let library = pegel_preload::install_in(&dir.join("preload")).expect("written");
    let mut plain: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut added: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for _ in 0..report.repetitions(7) {
        let without = run(dir, program, level, None);
        let with = run(dir, program, level, Some(&library));
        for (call, nanos) in with {
            let alone = without[&call];
            added.entry(call.clone()).or_default().push(nanos - alone);
            plain.entry(call).or_default().push(alone);
        }
    }
    for (call, figures) in added {
        // Passing on its twelve arguments alone takes a quarter of the smaller budget.
        let gate = match (call.as_str(), level) {
            ("MPI_Sendrecv", "single") => FigureGate::None,
            _ => FigureGate::AtMost(budget),
        };
        let alone = plain.get_mut(&call).map_or(0.0, |figures| median(figures));
        let work = format!("{name}, {level}: {call}, added");
        report.row_with_peers(&work, "ns", gate, figures, &[("alone", alone)]);
    }
}

/// Runs the program and returns the cost of each call in nanoseconds.
fn run(
    dir: &TempDir,
    program: &Path,
    level: &str,
    library: Option<&Path>,
) -> BTreeMap<String, f64> {
    let mut command = Command::new(program);
    command
        .arg(level)
        .env("PEGEL_LANES", dir.join("lanes"))
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    if let Some(library) = library {
        command.env("LD_PRELOAD", library);
    }
    let output = command.output().expect("a program");
    assert!(output.status.success(), "{command:?}: {output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let row = |line: &str| {
        let (call, nanos) = line.split_once(' ').expect("a name and a number");
        (call.to_owned(), nanos.parse().expect("a number"))
    };
    text.lines().map(row).collect()
}
