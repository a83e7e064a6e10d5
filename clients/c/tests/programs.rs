//! The library as a C programmer uses it: installed, found by pkg-config, compiled against and run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pegel_lane::reader::LaneValue;
use pegel_testkit::{ChildProcess, FinishedProcess, TempDir, c_library, need, open_lanes};

fn run(command: &mut Command) -> FinishedProcess {
    ChildProcess::start(command).wait(Duration::from_secs(300))
}

fn succeed(command: &mut Command) -> String {
    let finished = run(command);
    assert!(finished.status.success(), "{command:?}: {finished}");
    finished.stdout
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(name)
}

fn flags(args: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command
        .env("PKG_CONFIG_PATH", c_library().join("lib/pkgconfig"))
        .args(args)
        .arg("pegel");
    let flags = succeed(&mut command);
    flags.split_whitespace().map(str::to_owned).collect()
}

/// Compiles an example, with warnings as errors.
fn compile(dir: &TempDir, compiler: &str, standard: &str, source: &str, libs: &[&str]) -> PathBuf {
    let program = dir.join(format!("{source}-{standard}"));
    let mut command = Command::new(compiler);
    command
        .args([
            &format!("-std={standard}"),
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-O1",
        ])
        .args(["-x", if compiler == "c++" { "c++" } else { "c" }])
        .arg(example(source))
        .args(["-x", "none", "-o"])
        .arg(&program)
        .args(flags(libs))
        .arg("-lm");
    succeed(&mut command);
    program
}

fn check_solver(program: &Path) {
    let dir = TempDir::new();
    let printed = succeed(
        Command::new(program)
            .arg("50")
            .env("PEGEL_LANES", dir.path())
            .env("LD_LIBRARY_PATH", c_library().join("lib")),
    );
    assert_eq!(printed, "50 steps, published: true\n");
    let mut lanes = open_lanes(&dir);
    assert_eq!(lanes.len(), 2);
    let mut buffer = Vec::new();
    let view = lanes[0].read(&mut buffer).expect("readable");
    assert_eq!(view.len(), 5);
    let series = view.series(0).expect("described");
    assert_eq!(series.name, "solver_iterations_total");
    assert_eq!(series.labels, [("phase", "solve")]);
    assert_eq!(view.value(0), Some(LaneValue::Counter(50)));
    assert!(
        matches!(view.value(1), Some(LaneValue::FloatCounter(sum)) if (4.9e-5..5.1e-5).contains(&sum))
    );
    assert!(view.series(2).expect("described").with_rank);
    assert!(matches!(view.value(2), Some(LaneValue::Gauge { value, .. }) if value > 0.0));
    for index in [3, 4] {
        assert!(matches!(view.value(index), Some(LaneValue::Distribution(v)) if v.count() == 50));
    }
    let mut points = Vec::new();
    lanes[1].read(&mut buffer).expect("readable");
    lanes[1]
        .points(&mut buffer, true, &mut points)
        .expect("readable");
    let times: Vec<i64> = points.iter().map(|point| point.time_ms).collect();
    assert_eq!(times.len(), 50);
    let now = pegel_lane::now_ms();
    assert!(times.is_sorted() && times.iter().all(|time| (now - 60_000..=now).contains(time)));
}

#[test]
fn a_c_program_counts_with_the_shared_library() {
    if need("cc").is_none() || need("pkg-config").is_none() {
        return;
    }
    let dir = TempDir::new();
    check_solver(&compile(
        &dir,
        "cc",
        "c99",
        "solver.c",
        &["--cflags", "--libs"],
    ));
}

#[test]
fn a_cpp_program_counts_with_the_shared_library() {
    if need("c++").is_none() || need("pkg-config").is_none() {
        return;
    }
    let dir = TempDir::new();
    check_solver(&compile(
        &dir,
        "c++",
        "c++11",
        "solver.c",
        &["--cflags", "--libs"],
    ));
}

#[test]
fn a_c_program_counts_with_the_static_library() {
    if need("cc").is_none() || need("pkg-config").is_none() {
        return;
    }
    let dir = TempDir::new();
    let program = dir.join("solver");
    let private: Vec<String> = flags(&["--static", "--libs-only-l"])
        .into_iter()
        .filter(|flag| flag != "-lpegel")
        .collect();
    let mut command = Command::new("cc");
    command
        .arg(example("solver.c"))
        .args(flags(&["--cflags"]))
        .arg("-o")
        .arg(&program)
        .arg(c_library().join("lib/libpegel.a"))
        .args(private);
    succeed(&mut command);
    let needed = succeed(Command::new("ldd").arg(&program));
    assert!(!needed.contains("libpegel"), "{needed}");
    check_solver(&program);
}

#[test]
fn errors_are_explained_and_do_no_harm() {
    if need("cc").is_none() || need("pkg-config").is_none() {
        return;
    }
    let dir = TempDir::new();
    let lanes_dir = TempDir::new();
    let program = compile(&dir, "cc", "c99", "errors.c", &["--cflags", "--libs"]);
    let printed = succeed(
        Command::new(program)
            .env("PEGEL_LANES", lanes_dir.path())
            .env("LD_LIBRARY_PATH", c_library().join("lib")),
    );
    let expected = format!(
        "the metric name is empty\n\
         the metric name is empty\n\
         the metric name contains a brace, a quote or a control character\n\
         name, help and labels must be UTF-8\n\
         labels must be key=value,key=value; only pid and rank have no value\n\
         a label key is empty or contains one of {{ }} \" = , ! ~ or a control character\n\
         duplicate label\n\
         the label pid, and rank if it is requested, are set by the agent: give them no value\n\
         the aggregation must be PEGEL_LAST, PEGEL_MIN, PEGEL_MAX or PEGEL_SUM\n\
         version {}\n",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(printed, expected);
    let mut lanes = open_lanes(&lanes_dir);
    let mut buffer = Vec::new();
    let view = lanes[0].read(&mut buffer).expect("readable");
    let series = view.series(0).expect("described");
    assert_eq!(series.labels, [("a", "1"), ("b", ",=\\")]);
    assert!(series.with_pid && !series.with_rank);
    assert_eq!(view.value(0), Some(LaneValue::Counter(3)));
}

#[test]
fn the_header_names_what_the_library_exports_and_nothing_else() {
    if need("nm").is_none() {
        return;
    }
    let library = c_library().join("lib/libpegel.so");
    let exported = succeed(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(&library),
    );
    let exported: BTreeSet<&str> = exported
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    let header = std::fs::read_to_string(c_library().join("include/pegel.h")).expect("installed");
    let mut declared = BTreeSet::new();
    let mut is_comment = false;
    for line in header.lines() {
        is_comment = is_comment || line.starts_with("/*");
        if !is_comment && let Some((before, _)) = line.split_once('(') {
            let name = before.rsplit([' ', '*']).next().unwrap_or_default();
            declared.insert(name);
        }
        is_comment = is_comment && !line.ends_with("*/");
    }
    assert!(declared.len() >= 19, "{declared:?}");
    assert_eq!(declared, exported);
}
