//! Compiles MPI programs with Debian's compilers, runs them with the library preloaded, and reads
//! their lanes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pegel_lane::reader::{LaneFile, LaneValue};
use pegel_testkit::{
    ChildProcess, FinishedProcess, REPOSITORY, TempDir, isolate, need, open_ready_lanes,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MpiLibrary {
    OpenMpi,
    Mpich,
}

impl MpiLibrary {
    pub(super) const BOTH: [MpiLibrary; 2] = [MpiLibrary::OpenMpi, MpiLibrary::Mpich];

    /// Returns a program of this library's package; None if the test is to be skipped.
    #[track_caller]
    pub(super) fn need(self, program: &str) -> Option<PathBuf> {
        match self {
            MpiLibrary::OpenMpi => need(&format!("{program}.openmpi")),
            MpiLibrary::Mpich => need(&format!("{program}.mpich")),
        }
    }
}

/// Hits, bytes and nanoseconds of one call, of all ranks together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct MpiCount {
    pub hits: u64,
    pub bytes: u64,
    pub nanos: u64,
}

/// A directory with everything that a run of one program needs.
pub(super) struct MpiRun {
    pub library: MpiLibrary,
    pub dir: TempDir,
    pub preload: PathBuf,
}

impl MpiRun {
    #[track_caller]
    pub(super) fn new(library: MpiLibrary) -> Option<MpiRun> {
        library.need("mpirun")?;
        let dir = TempDir::new();
        let preload = pegel_preload::install_in(&dir.join("preload")).expect("a place");
        std::fs::create_dir(dir.join("lanes")).expect("a directory of our own");
        Some(MpiRun {
            library,
            dir,
            preload,
        })
    }

    /// Compiles with the library's compiler wrapper: `mpicc`, `mpicxx`, `mpif90`.
    #[track_caller]
    pub(super) fn compile(&self, compiler: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
        let compiler = self.library.need(compiler)?;
        let program = self.dir.join(source.replace('.', "-"));
        let mut command = Command::new(compiler);
        command
            .args(["-O1", "-o"])
            .arg(&program)
            .arg(sources().join(source))
            .args(flags);
        let finished = ChildProcess::start(&mut command).wait(Duration::from_secs(300));
        assert!(finished.status.success(), "{command:?}: {finished}");
        Some(program)
    }

    /// Returns `mpirun` for this number of ranks, each with the preloaded library and the
    /// variables.
    pub(super) fn mpirun(&self, ranks: usize, env: &[(&str, &str)], program: &[&Path]) -> Command {
        let mut command = Command::new(self.library.need("mpirun").expect("found before"));
        isolate(&mut command, &self.dir);
        if self.library == MpiLibrary::OpenMpi {
            command.arg("--oversubscribe");
        }
        command
            // Open MPI requires them if tests run as root.
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            // Some defaults of Debian's versions break correct programs, also without the library:
            // remote memory over shared memory in Open MPI 4.1, persistent gathers in MPICH 4.0.
            .env("OMPI_MCA_osc", "^rdma")
            .env("MPIR_CVAR_IGATHER_INTRA_ALGORITHM", "tsp_tree")
            .env("MPIR_CVAR_ISCATTER_INTRA_ALGORITHM", "tsp_tree")
            .env("COUNTS", self.dir.join("counts"))
            .env("DATA", self.dir.join("data"))
            .arg("-np")
            .arg(ranks.to_string())
            .arg("env")
            .arg(preload(&self.preload));
        for (name, value) in env {
            command.arg(format!("{name}={value}"));
        }
        command.args(program);
        command
    }

    /// Runs the program, which must succeed.
    pub(super) fn run(
        &self,
        ranks: usize,
        env: &[(&str, &str)],
        program: &[&Path],
    ) -> FinishedProcess {
        let mut command = self.mpirun(ranks, env, program);
        let finished = ChildProcess::start(&mut command).wait(Duration::from_secs(120));
        assert!(finished.status.success(), "{command:?}: {finished}");
        finished
    }

    pub(super) fn lanes(&self) -> Vec<LaneFile> {
        open_ready_lanes(self.dir.join("lanes"))
    }

    /// Returns the sums of all lanes, by name of the call.
    pub(super) fn counted(&self) -> BTreeMap<String, MpiCount> {
        let mut sums = BTreeMap::new();
        for lane in &mut self.lanes() {
            add(lane, &mut sums);
        }
        sums
    }

    /// Returns the counts that the ranks of the program reported, without times.
    pub(super) fn expected(&self, ranks: usize) -> BTreeMap<String, MpiCount> {
        let mut sums: BTreeMap<String, MpiCount> = BTreeMap::new();
        for rank in 0..ranks {
            let path = self.dir.join(format!("counts.{rank}"));
            let text = std::fs::read_to_string(&path).expect("each rank writes its counts");
            for line in text.lines() {
                let fields: Vec<&str> = line.split(' ').collect();
                let sum = sums.entry(fields[0].to_owned()).or_default();
                sum.hits += fields[1].parse::<u64>().expect("a number");
                sum.bytes += fields[2].parse::<u64>().expect("a number");
            }
        }
        sums
    }
}

pub(super) fn sources() -> PathBuf {
    Path::new(REPOSITORY).join("tests/run/mpi")
}

fn preload(library: &Path) -> OsString {
    let mut assignment = OsString::from("LD_PRELOAD=");
    let existing = std::env::var_os("LD_PRELOAD");
    assignment.push(pegel_preload::preload_value(existing.as_deref(), library));
    assignment
}

/// Adds the counts of one lane.
pub(super) fn add(lane: &mut LaneFile, sums: &mut BTreeMap<String, MpiCount>) {
    let mut buffer = Vec::new();
    let view = lane.read(&mut buffer).expect("readable");
    for index in 0..view.len() {
        let series = view.series(index).expect("described");
        // The wrapper counts its starts and system calls in a lane of its own.
        if series.name == "tau_metric_proxy_run_total" || series.name.starts_with("strace") {
            continue;
        }
        assert_eq!(series.name, "mpi");
        let [("call", call)] = series.labels[..] else {
            panic!("{:?}", series.labels);
        };
        let Some(LaneValue::Calls { hits, bytes, nanos }) = view.value(index) else {
            panic!("{call} is of another kind");
        };
        let sum = sums.entry(call.to_owned()).or_default();
        sum.hits += hits;
        sum.bytes += bytes;
        sum.nanos += nanos;
    }
}

/// Compares hits and bytes; times are never the same.
pub(super) fn assert_same(
    counted: &BTreeMap<String, MpiCount>,
    expected: &BTreeMap<String, MpiCount>,
) {
    let without_time = |counts: &BTreeMap<String, MpiCount>| -> BTreeMap<String, (u64, u64)> {
        let pair = |(name, count): (&String, &MpiCount)| (name.clone(), (count.hits, count.bytes));
        counts.iter().map(pair).collect()
    };
    let (counted, expected) = (without_time(counted), without_time(expected));
    let differing = counted
        .iter()
        .filter(|(name, count)| expected.get(*name) != Some(*count));
    let missing = expected.keys().filter(|name| !counted.contains_key(*name));
    let differing: Vec<_> = differing.map(|(name, _)| name).chain(missing).collect();
    let differences: Vec<String> = differing
        .iter()
        .map(|name| {
            let (ours, theirs) = (counted.get(*name), expected.get(*name));
            format!("{name}: counted {ours:?}, the program {theirs:?} (hits, bytes)")
        })
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
