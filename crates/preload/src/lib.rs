//! Carries the library that counts MPI calls inside the binary, so that one file is all that has to be
//! installed, and puts it where the dynamic linker can load it.

mod install;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

pub use install::{InstallError, install_in};

/// The library itself, built for this machine's kind of processor.
pub static MPI_LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libpegel_mpi.so"));

/// Two versions may be in use at the same time, each under its own name.
const FILE_NAME: &str = concat!("libpegel_mpi-", env!("PEGEL_MPI_LIBRARY_HASH"), ".so");

/// Names a library to use in place of the one that is carried: for containers in which no place will do.
pub const LIBRARY_VARIABLE: &str = "PEGEL_MPI_LIBRARY";

/// Where the library is, having put it there if it was not.
pub fn mpi_library() -> Result<PathBuf, InstallError> {
    if let Some(path) = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()) {
        return install::check_named(PathBuf::from(path));
    }
    install::install_in_first(&install::candidates(|name| std::env::var_os(name)))
}

/// The value of `LD_PRELOAD` with the library behind what is there: some must come first, such as the
/// runtimes of sanitizers, and ours need not.
pub fn preload_value(existing: Option<&OsStr>, library: &Path) -> OsString {
    let mut value = existing.unwrap_or_default().to_owned();
    if !value.is_empty() {
        value.push(":");
    }
    value.push(library);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_preloaded_already_stays_and_comes_first() {
        let library = Path::new("/tmp/a.so");
        assert_eq!(preload_value(None, library), "/tmp/a.so");
        assert_eq!(preload_value(Some(OsStr::new("")), library), "/tmp/a.so");
        let both = preload_value(Some(OsStr::new("libasan.so.8 x.so")), library);
        assert_eq!(both, "libasan.so.8 x.so:/tmp/a.so");
    }

    #[test]
    fn the_library_is_a_shared_object() {
        assert_eq!(MPI_LIBRARY.get(..4), Some(b"\x7fELF".as_slice()));
        assert!(FILE_NAME.len() == "libpegel_mpi-.so".len() + 16);
    }
}
