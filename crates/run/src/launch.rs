//! From `pegel run` to the program: whoever counts gets ready, then the program takes this process's place.

use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::path_resolver::PathResolver;
use crate::program;
use crate::summary::Summary;
use crate::watch::{READY_FOR_FILTER, Watch};
use crate::{Agents, Method, Time, apart, heritage, preload, seccomp, tally};

/// A program to be run.
#[allow(missing_debug_implementations)] // What it calls has no form to be shown.
pub struct Launch<'a> {
    /// The command and its arguments; at least one.
    pub command: &'a [OsString],
    /// Whether system calls are counted, and how.
    pub syscalls: Option<Counting>,
    /// Whether MPI calls are counted, by a library that is loaded into the program.
    pub mpi: bool,
    /// Says what a person wants to know who asked for it. It is called in the process that counts, too.
    pub note: &'a dyn Fn(&str),
    /// The last word about the program, before its parent learns of its end.
    pub finish: &'a dyn Fn(&Summary),
    /// Whether `note` or `finish` may write to standard error.
    pub keeps_stderr: bool,
}

/// How system calls are to be counted.
#[derive(Debug, Clone)]
pub struct Counting {
    /// The best that this machine allows, if none is named.
    pub method: Option<Method>,
    /// Only eBPF can do without.
    pub time: Time,
    /// Who may count where this process may not.
    pub agents: Agents,
}

/// The program did not start.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("no command is given")]
    Nothing,
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
        let command = self.command.first().ok_or(LaunchError::Nothing)?;
        let path = program::find(command);
        let resolver = PathResolver::for_self();
        let file = path.as_deref().and_then(|path| resolver.open(path));
        let file = file.map(|file| resolver.interpreter(file));
        if self.mpi {
            preload::prepare(file.as_ref(), self.note);
        }
        let is_privileged = file.as_ref().is_some_and(program::Program::changes_rights);
        drop(file);
        match &self.syscalls {
            Some(_) if pegel_lane::is_disabled() => {
                (self.note)("PEGEL_DISABLE is set: nothing is counted");
            }
            Some(_) if is_privileged => {
                (self.note)(
                    "the program gets rights of its own (set-uid): its calls are not counted",
                );
                tally::count_launch();
            }
            Some(counting) => self.start_counting(counting),
            None => tally::count_launch(),
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
        let command = self.command.first().ok_or(LaunchError::Nothing)?;
        let mut pointers: Vec<*const libc::c_char> =
            arguments.iter().map(|text| text.as_ptr()).collect();
        pointers.push(std::ptr::null());
        heritage::restore();
        // SAFETY: a list of C strings that ends with a null pointer, all of which live until the end.
        unsafe { libc::execvp(pointers[0], pointers.as_ptr()) };
        let mut source = io::Error::last_os_error();
        // A directory of PATH that may not be searched: to a shell, what could be in it is not found.
        if source.raw_os_error() == Some(libc::EACCES) && program::is_nowhere(command) {
            source = io::Error::from_raw_os_error(libc::ENOENT);
        }
        let command = command.clone();
        Err(LaunchError::Exec { command, source })
    }

    /// When this returns, the program is counted from its first call on; or it is not, and a person who asked was told
    /// why.
    fn start_counting(&self, counting: &Counting) {
        let helper = apart::start(self.keeps_stderr, |wrapper, link| {
            let watch = Watch {
                note: self.note,
                finish: self.finish,
            };
            watch.program(wrapper, link, counting);
        });
        let answer = match helper {
            Ok(mut link) => link.receive(),
            Err(error) => {
                (self.note)(&format!("system calls are not counted: {error}"));
                None
            }
        };
        if answer == Some(READY_FOR_FILTER)
            && let Err(error) = seccomp::install()
        {
            (self.note)(&format!("system calls are not counted: no filter: {error}"));
        }
    }
}
