//! Checks the exported symbols and the dependencies of the built library.

use std::process::Command;
use std::time::Duration;

use pegel_testkit::{ChildProcess, TempDir, need};

#[test]
fn it_exports_names_of_mpi_and_nothing_else() {
    let Some(nm) = need("nm") else { return };
    let dir = TempDir::new();
    let library = pegel_preload::install_in(&dir.join("pegel")).expect("a place");
    let mut command = Command::new(nm);
    command.args(["-D", "--defined-only"]).arg(library);
    let listed = ChildProcess::start(&mut command).wait(Duration::from_secs(60));
    let names: Vec<&str> = listed
        .stdout
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    let count = |start: &str| names.iter().filter(|name| name.starts_with(start)).count();
    // 587 C functions with two names each; 17 Fortran functions in seven spellings each.
    let upper = 17;
    assert_eq!((count("MPI_"), count("PMPI_")), (587 + upper, 587));
    assert_eq!(
        (count("mpi_"), count("pmpi_"), count("ompi_")),
        (4 * 17, 17, 17)
    );
    assert_eq!(names.len(), 2 * 587 + 7 * 17, "{names:?}");
}

#[test]
fn it_needs_no_more_than_the_c_library() {
    let Some(readelf) = need("readelf") else {
        return;
    };
    let dir = TempDir::new();
    let library = pegel_preload::install_in(&dir.join("pegel")).expect("a place");
    let mut command = Command::new(readelf);
    command.args(["-d", "-W"]).arg(library);
    let listed = ChildProcess::start(&mut command).wait(Duration::from_secs(60));
    let needed = listed
        .stdout
        .lines()
        .filter(|line| line.contains("(NEEDED)"));
    for line in needed {
        let is_known = ["[libc.so.6]", "[libgcc_s.so.1]", "[ld-linux-"]
            .iter()
            .any(|name| line.contains(name));
        assert!(is_known, "{line}");
    }
}
