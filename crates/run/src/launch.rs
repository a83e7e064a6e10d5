//! From `pegel run` to the program: whoever counts gets ready, then the program takes this process's place.

use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::executable_file;
use crate::path_resolver::PathResolver;
use crate::program_watcher::{ProgramWatcher, READY_FOR_FILTER};
use crate::summary::ProgramSummary;
use crate::{
    CallTiming, CountingAgents, CountingMethod, helper_process, inherited_state, mpi_preload,
    seccomp, syscall_tally,
};

/// A program to be run.
#[allow(missing_debug_implementations)] // What it calls has no form to be shown.
pub struct Launch<'a> {
    /// The command and its arguments; at least one.
    pub command: &'a [OsString],
    /// Whether system calls are counted, and how.
    pub syscalls: Option<CountingOptions>,
    /// Whether MPI calls are counted, by a library that is loaded into the program.
    pub mpi: bool,
    /// Says what a person wants to know who asked for it. It is called in the process that counts, too.
    pub note: &'a dyn Fn(&str),
    /// The last word about the program, before its parent learns of its end.
    pub finish: &'a dyn Fn(&ProgramSummary),
    /// Whether `note` or `finish` may write to standard error.
    pub keeps_stderr: bool,
}

/// How system calls are to be counted.
#[derive(Debug, Clone)]
pub struct CountingOptions {
    /// The best that this machine allows, if none is named.
    pub method: Option<CountingMethod>,
    /// Only eBPF can do without.
    pub time: CallTiming,
    /// Who may count where this process may not.
    pub agents: CountingAgents,
}

/// The program did not start.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("no command is given")]
    NoCommand,
    #[error("cannot run {}: a zero byte in the command", .0.display())]
    ZeroByte(OsString),
    #[error("cannot run {}", command.display())]
    Exec {
        command: OsString,
        #[source]
        source: io::Error,
    },
}

impl LaunchError {
    /// What a shell would exit with.
    pub fn exit_code(&self) -> u8 {
        match self {
            LaunchError::Exec { source, .. } => match source.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => 127,
                _ => 126,
            },
            _ => 127,
        }
    }
}

impl Launch<'_> {
    /// Returns only when the program could not be started. The caller must have no other thread.
    pub fn run(&self) -> Result<Infallible, LaunchError> {
        let command = self.command.first().ok_or(LaunchError::NoCommand)?;
        let path = executable_file::find_in_path(command);
        let resolver = PathResolver::for_self();
        let file = path.as_deref().and_then(|path| resolver.open(path));
        let file = file.map(|file| resolver.interpreter(file));
        if self.mpi {
            mpi_preload::set_ld_preload(file.as_ref(), self.note);
        }
        let is_privileged = file
            .as_ref()
            .is_some_and(executable_file::ExecutableFile::changes_privileges);
        drop(file);
        match &self.syscalls {
            Some(_) if pegel_lane::is_disabled() => {
                (self.note)("PEGEL_DISABLE is set: nothing is counted");
            }
            Some(_) if is_privileged => {
                (self.note)(
                    "the program gets rights of its own (set-uid): its calls are not counted",
                );
                syscall_tally::count_launch();
            }
            Some(counting) => self.start_counting(counting),
            None => syscall_tally::count_launch(),
        }
        self.exec()
    }

    fn exec(&self) -> Result<Infallible, LaunchError> {
        let mut arguments = Vec::new();
        for argument in self.command {
            let bytes = argument.as_bytes().to_vec();
            let text = CString::new(bytes).map_err(|_| LaunchError::ZeroByte(argument.clone()))?;
            arguments.push(text);
        }
        let command = self.command.first().ok_or(LaunchError::NoCommand)?;
        let mut pointers: Vec<*const libc::c_char> =
            arguments.iter().map(|text| text.as_ptr()).collect();
        pointers.push(std::ptr::null());
        inherited_state::restore_inherited();
        // SAFETY: a list of C strings that ends with a null pointer, all of which live until the end.
        unsafe { libc::execvp(pointers[0], pointers.as_ptr()) };
        let mut source = io::Error::last_os_error();
        // A directory of PATH that may not be searched: to a shell, what could be in it is not found.
        if source.raw_os_error() == Some(libc::EACCES)
            && executable_file::is_missing_from_path(command)
        {
            source = io::Error::from_raw_os_error(libc::ENOENT);
        }
        let command = command.clone();
        Err(LaunchError::Exec { command, source })
    }

    /// When this returns, the program is counted from its first call on; or it is not, and a person who asked was told
    /// why.
    fn start_counting(&self, counting: &CountingOptions) {
        let helper = helper_process::start_helper(self.keeps_stderr, |wrapper, link| {
            let watch = ProgramWatcher {
                note: self.note,
                finish: self.finish,
            };
            watch.count_program(wrapper, link, counting);
        });
        let answer = match helper {
            Ok(mut link) => link.receive(),
            Err(error) => {
                (self.note)(&format!("system calls are not counted: {error}"));
                None
            }
        };
        if answer == Some(READY_FOR_FILTER)
            && let Err(error) = seccomp::install_filter()
        {
            (self.note)(&format!("system calls are not counted: no filter: {error}"));
        }
    }
}
