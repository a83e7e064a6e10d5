//! Sets `LD_PRELOAD` so that the library that counts MPI calls is loaded into the program.

use std::env;

use pegel_preload::{mpi_library, preload_value};

use crate::executable_file::ExecutableFile;

/// Appends the library to `LD_PRELOAD` and returns true, or reports with `note` why MPI calls are
/// not counted.
pub(crate) fn set_ld_preload(program: Option<&ExecutableFile>, note: &dyn Fn(&str)) -> bool {
    if pegel_lane::is_disabled() {
        note("PEGEL_DISABLE is set: MPI calls are not counted");
        return false;
    }
    if program.and_then(ExecutableFile::is_static) == Some(true) {
        note("the program is statically linked; MPI calls are not counted");
        return false;
    }
    let library = match mpi_library() {
        Ok(library) => library,
        Err(error) => {
            note(&format!("MPI calls are not counted: {error}"));
            return false;
        }
    };
    note(&format!("MPI calls are counted by {}", library.display()));
    let libraries = preload_value(env::var_os("LD_PRELOAD").as_deref(), &library);
    // SAFETY: `Launch::run` requires a single-threaded caller.
    unsafe { env::set_var("LD_PRELOAD", libraries) };
    true
}
