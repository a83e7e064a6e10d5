//! Embeds the library that counts MPI calls in the binary, so that Pegel is installed as a single
//! file, and writes it to a directory from which the dynamic linker can load it.

mod install;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

pub use install::{InstallError, install_in};

/// The library, built for the target's architecture.
pub static MPI_LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libpegel_mpi.so"));

/// The file name contains a hash, so that several versions can be in use at the same time.
const FILE_NAME: &str = concat!("libpegel_mpi-", env!("PEGEL_MPI_LIBRARY_HASH"), ".so");

/// The variable that names a library to use instead of the embedded one: for containers without a
/// suitable directory.
pub const LIBRARY_VARIABLE: &str = "PEGEL_MPI_LIBRARY";

/// Installs the library if necessary and returns its path.
pub fn mpi_library() -> Result<PathBuf, InstallError> {
    if let Some(path) = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()) {
        return install::check_named(PathBuf::from(path));
    }
    install::install_in_first(&install::candidates(|name| std::env::var_os(name)))
}

/// Returns the value of `LD_PRELOAD` with the library appended: other libraries, such as the
/// runtimes of sanitizers, must come first.
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
