//! Loads the library that counts MPI calls into the program.

use std::env;

use pegel_preload::{mpi_library, preload_value};

use crate::executable_file::ExecutableFile;

/// Puts the library into the environment of the program to come, behind those that are there already.
pub(crate) fn set_ld_preload(program: Option<&ExecutableFile>, note: &dyn Fn(&str)) {
    if pegel_lane::is_disabled() {
        note("PEGEL_DISABLE is set: MPI calls are not counted");
        return;
    }
    if program.and_then(ExecutableFile::is_static) == Some(true) {
        note("the program is static: nothing can be loaded into it, MPI calls are not counted");
        return;
    }
    let library = match mpi_library() {
        Ok(library) => library,
        Err(error) => {
            note(&format!("MPI calls are not counted: {error}"));
            return;
        }
    };
    note(&format!("MPI calls are counted by {}", library.display()));
    let libraries = preload_value(env::var_os("LD_PRELOAD").as_deref(), &library);
    // SAFETY: this process has one thread.
    unsafe { env::set_var("LD_PRELOAD", libraries) };
}
