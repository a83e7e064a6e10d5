//! The overhead of the preloaded library per MPI call, compared with the same program without it in
//! the same run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use pegel_bench::{BenchReport, FigureGate, median};
use pegel_testkit::{TempDir, need};

const LIBRARIES: [(&str, &str); 2] = [("Open MPI", "openmpi"), ("MPICH", "mpich")];

/// The row of the program that measures what no wrapper can avoid.
const FLOOR: &str = "floor";
/// The budget above that floor, in nanoseconds. Reading the processor's counter takes 5 to 13 ns
/// and an atomic addition 2 to 6, depending on the processor, so a budget for the sum would measure
/// the processor.
const OVER_FLOOR_MAX: f64 = 15.0;
/// `MPI_Sendrecv` passes on twelve arguments, most of them on the stack, and reads a status.
const SENDRECV_OVER_FLOOR_MAX: f64 = 20.0;

fn main() -> ExitCode {
    let mut report = BenchReport::new("mpi");
    for (name, package) in LIBRARIES {
        let dir = TempDir::new();
        let Some(program) = compile(&dir, package) else {
            continue;
        };
        for level in ["single", "multiple"] {
            measure(&mut report, &dir, &program, (name, level));
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

fn measure(report: &mut BenchReport, dir: &TempDir, program: &Path, case: (&str, &str)) {
    let (name, level) = case;
    let library = pegel_preload::install_in(&dir.join("preload")).expect("written");
    let mut plain: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut added: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut floors = Vec::new();
    for _ in 0..report.repetitions(7) {
        let mut without = run(dir, program, level, None);
        let with = run(dir, program, level, Some(&library));
        let floor = without.remove(FLOOR).expect("the program prints it");
        for (call, alone) in without {
            added
                .entry(call.clone())
                .or_default()
                .push(with[&call] - alone);
            plain.entry(call).or_default().push(alone);
        }
        floors.push(floor);
    }
    let floor = median(&mut floors.clone());
    let work = format!("{name}, {level}: two counter reads, three additions");
    report.row(&work, "ns", FigureGate::None, floors);
    for (call, figures) in added {
        let alone = plain.get_mut(&call).map_or(0.0, |figures| median(figures));
        let work = format!("{name}, {level}: {call}, added");
        let over_floor_max = match call.as_str() {
            "MPI_Sendrecv" => SENDRECV_OVER_FLOOR_MAX,
            _ => OVER_FLOOR_MAX,
        };
        let gate = FigureGate::AtMost(floor + over_floor_max);
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
