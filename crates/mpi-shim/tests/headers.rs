//! Compares the table with installed headers and libraries: every function is present, with its
//! number of arguments.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{ChildProcess, FinishedProcess, TempDir, need};

fn run(command: &mut Command) -> FinishedProcess {
    let finished = ChildProcess::start(command).wait(Duration::from_secs(300));
    assert!(finished.status.success(), "{command:?}: {finished}");
    finished
}

/// Returns the C functions that a library exports.
fn exported(nm: &std::path::Path, library: &str) -> BTreeSet<String> {
    let listed = run(Command::new(nm).args(["-D", "--defined-only", library])).stdout;
    let names = listed.lines().filter_map(|line| line.split(' ').nth(2));
    let is_function = |name: &&str| {
        name.starts_with("MPI_") && name.bytes().any(|byte| byte.is_ascii_lowercase())
    };
    names.filter(is_function).map(str::to_owned).collect()
}

/// Returns whether a function is intentionally not wrapped.
fn is_excluded(name: &str) -> bool {
    let conversions = ["_c2f", "_f2c", "_c2f08", "_f082c", "_f2f08", "_f082f"];
    let others = [
        "MPI_Pcontrol",
        "MPI_Wtime",
        "MPI_Wtick",
        "MPI_Aint_add",
        "MPI_Aint_diff",
    ];
    name.starts_with("MPI_T_")
        || others.contains(&name)
        || conversions.iter().any(|end| name.ends_with(end))
}

/// Returns a C++ program that does not compile if a function has another number of arguments, a
/// floating-point one, or returns anything but an `int`.
fn checks(names: &BTreeSet<String>) -> String {
    let mut text = String::from(
        "#include <mpi.h>\n#include <type_traits>\n\
         template <class R, class... A> constexpr int arity(R (*)(A...)) {\n\
         static_assert(std::is_same<R, int>::value, \"\");\n\
         static_assert(!(std::is_floating_point<A>::value || ... || false), \"\");\n\
         return sizeof...(A); }\n",
    );
    for (name, arity) in pegel_mpi::functions() {
        if names.contains(name) {
            let _ = writeln!(
                text,
                "static_assert(arity(&{name}) == {arity}, \"{name}\");"
            );
        }
    }
    text
}

#[test]
fn the_table_agrees_with_open_mpi_and_mpich() {
    let Some(nm) = need("nm") else { return };
    let libraries = [
        ("mpicxx.openmpi", "libmpi.so.40"),
        ("mpicxx.mpich", "libmpich.so.12"),
    ];
    let wrapped: BTreeSet<&str> = pegel_mpi::functions().map(|(name, _)| name).collect();
    assert_eq!(
        wrapped.len(),
        pegel_mpi::functions().count(),
        "a name twice"
    );
    assert_eq!(wrapped.len(), 587);
    for (compiler, library) in libraries {
        let Some(compiler) = need(compiler) else {
            return;
        };
        let found = run(Command::new(&compiler).arg(format!("-print-file-name={library}")));
        let names = exported(&nm, found.stdout.trim());
        assert!(names.len() > 400, "{library}: {}", names.len());
        let forgotten: Vec<&String> = names
            .iter()
            .filter(|name| !is_excluded(name) && !wrapped.contains(name.as_str()))
            .collect();
        assert!(forgotten.is_empty(), "{library} has {forgotten:?}");

        let dir = TempDir::new();
        let source = dir.join("checks.cc");
        std::fs::write(&source, checks(&names)).expect("our own");
        let mut compile = Command::new(&compiler);
        // Functions that MPI 3 removed are still in the library.
        compile.args([
            "-std=c++17",
            "-fsyntax-only",
            "-w",
            "-DOMPI_OMIT_MPI1_COMPAT_DECLS=0",
        ]);
        run(compile.arg(&source));
    }
}
