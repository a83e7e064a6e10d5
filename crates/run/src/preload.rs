//! Loads the library that counts MPI calls into the program.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::program::Program;

const LIBRARY: &str = "libpegel_mpi.so";

/// Puts the library into the environment of the program to come, behind those that are there already.
pub(crate) fn prepare(program: Option<&Program>, note: &dyn Fn(&str)) {
    if pegel_lane::is_disabled() {
        note("PEGEL_DISABLE is set: MPI calls are not counted");
        return;
    }
    let Some(library) = find() else {
        note(&format!(
            "MPI calls are not counted: {LIBRARY} is neither in $PEGEL_MPI_SHIM nor beside this program nor in ../lib/pegel"
        ));
        return;
    };
    if program.and_then(Program::is_static) == Some(true) {
        note("the program is static: nothing can be loaded into it, MPI calls are not counted");
        return;
    }
    note(&format!("MPI calls are counted by {}", library.display()));
    let before = env::var_os("LD_PRELOAD");
    let libraries = behind(before.as_deref(), library.as_os_str());
    // SAFETY: this process has one thread.
    unsafe { env::set_var("LD_PRELOAD", libraries) };
}

fn behind(before: Option<&OsStr>, library: &OsStr) -> OsString {
    let mut libraries = before.unwrap_or_default().to_owned();
    if !libraries.is_empty() {
        libraries.push(":");
    }
    libraries.push(library);
    libraries
}

/// Where the library is: named, beside this program, or where packages put it.
fn find() -> Option<PathBuf> {
    if let Some(named) = env::var_os("PEGEL_MPI_SHIM").filter(|path| !path.is_empty()) {
        let named = PathBuf::from(named);
        let path = match named.is_dir() {
            true => named.join(LIBRARY),
            false => named,
        };
        // The program may start in another directory.
        return std::path::absolute(path).ok().filter(|path| path.is_file());
    }
    let own = env::current_exe().ok()?;
    let dir = own.parent()?;
    let places = [dir.join(LIBRARY), dir.join("../lib/pegel").join(LIBRARY)];
    places.into_iter().find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_are_there_stay_first() {
        let behind = |before: Option<&str>| behind(before.map(OsStr::new), "/l.so".as_ref());
        assert_eq!(behind(None), "/l.so");
        assert_eq!(behind(Some("")), "/l.so");
        assert_eq!(behind(Some("/a.so /b.so")), "/a.so /b.so:/l.so");
    }
}
