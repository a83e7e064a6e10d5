//! Starts a program under `pegel run`: starts the helper process that counts, waits until it is
//! ready, then executes the program in this process.

use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::executable_file;
use crate::helper_process::HelperLink;
use crate::mpi_lanes::{LaneList, MpiLanes};
use crate::path_resolver::PathResolver;
use crate::program_watcher::{EXEC_FAILED, ProgramWatcher, READY_FOR_FILTER};
use crate::run_observer::RunObserver;
use crate::summary::ProgramSummary;
use crate::{
    CallTiming, CountingAgents, CountingMethod, helper_process, inherited_state, mpi_preload,
    seccomp, syscall_tally,
};

/// A program to run.
#[allow(missing_debug_implementations)] // Closures have no Debug form.
pub struct Launch<'a> {
    /// The command and its arguments; at least one.
    pub command: &'a [OsString],
    /// Whether system calls are counted, and how.
    pub syscalls: Option<CountingOptions>,
    /// Whether MPI calls are counted, by a library preloaded into the program.
    pub mpi: bool,
    /// Prints a message for `-v`. Also called in the helper process.
    pub note: &'a dyn Fn(&str),
    /// Whether the summary includes resource usage and MPI calls.
    pub wants_summary: bool,
    /// Called in the helper process before the program starts.
    pub on_start: &'a dyn Fn(),
    /// Receives the summary after the program has exited and, if the kernel permits holding it,
    /// before its parent is notified.
    pub finish: &'a dyn Fn(&ProgramSummary),
    /// Whether `note` or `finish` may write to standard error.
    pub keeps_stderr: bool,
}

/// The method of counting system calls.
#[derive(Debug, Clone)]
pub struct CountingOptions {
    /// None: the best that this machine permits.
    pub method: Option<CountingMethod>,
    /// Only eBPF can omit the time.
    pub time: CallTiming,
    /// Agents that may count where this process is not permitted to.
    pub agents: CountingAgents,
}

/// An error that kept the program from starting.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("no command given")]
    NoCommand,
    #[error("cannot run {}: the command contains a NUL byte", .0.display())]
    ZeroByte(OsString),
    #[error("cannot run {}", command.display())]
    Exec {
        command: OsString,
        #[source]
        source: io::Error,
    },
}

impl LaunchError {
    /// Returns the exit status that a shell would use.
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
    /// Executes the program; returns only if it could not be started. The caller must be
    /// single-threaded.
    pub fn run(&self) -> Result<Infallible, LaunchError> {
        let command = self.command.first().ok_or(LaunchError::NoCommand)?;
        let path = executable_file::find_in_path(command);
        let resolver = PathResolver::for_self();
        let file = path.as_deref().and_then(|path| resolver.open(path));
        let file = file.map(|file| resolver.interpreter(file));
        let is_mpi_counted = self.mpi && mpi_preload::set_ld_preload(file.as_ref(), self.note);
        let is_privileged = file
            .as_ref()
            .is_some_and(executable_file::ExecutableFile::changes_privileges);
        drop(file);
        let mut link = None;
        match &self.syscalls {
            _ if pegel_lane::is_disabled() => {
                (self.note)("PEGEL_DISABLE is set: nothing is counted");
            }
            Some(_) if is_privileged => {
                (self.note)(
                    "the program is privileged (set-user-ID, set-group-ID or file capabilities); its calls are not counted",
                );
                syscall_tally::count_launch();
            }
            None if is_privileged || !self.wants_summary => syscall_tally::count_launch(),
            counting => link = self.start_helper(counting.as_ref(), is_mpi_counted),
        }
        let Err(error) = self.exec();
        if let Some(mut link) = link {
            // An error means that the helper is gone.
            let _ = link.send(EXEC_FAILED);
        }
        Err(error)
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
        // SAFETY: `pointers` ends with a null pointer, and `arguments` keeps the C strings alive
        // for the call.
        unsafe { libc::execvp(pointers[0], pointers.as_ptr()) };
        let mut source = io::Error::last_os_error();
        // A directory of PATH without search permission: a shell reports the command as not found.
        if source.raw_os_error() == Some(libc::EACCES)
            && executable_file::is_missing_from_path(command)
        {
            source = io::Error::from_raw_os_error(libc::ENOENT);
        }
        let command = command.clone();
        Err(LaunchError::Exec { command, source })
    }

    /// Starts the helper process and waits until it is ready. On return, either the program is
    /// counted from its first call on, or the reason why not has been reported with `note`.
    fn start_helper(
        &self,
        counting: Option<&CountingOptions>,
        is_mpi_counted: bool,
    ) -> Option<HelperLink> {
        let lane_list = (self.wants_summary && is_mpi_counted)
            .then(|| self.create_lane_list())
            .flatten();
        let list_path = lane_list.as_ref().map(|list| list.path().to_owned());
        let helper = helper_process::start_helper(self.keeps_stderr, |wrapper, link| {
            (self.on_start)();
            let mpi = lane_list.and_then(|list| MpiLanes::open(list).ok());
            let observer = self.wants_summary.then(|| RunObserver::new(wrapper, mpi));
            let watcher = ProgramWatcher {
                note: self.note,
                finish: self.finish,
                wrapper,
                counting,
            };
            watcher.watch(link, observer);
        });
        let mut link = match helper {
            Ok(link) => link,
            Err(error) => {
                let missing = match counting {
                    Some(_) => "system calls are not counted",
                    None => "there is no summary",
                };
                (self.note)(&format!("{missing}: {error}"));
                if let Some(path) = list_path {
                    let _ = std::fs::remove_file(path);
                    // SAFETY: `Launch::run` requires a single-threaded caller.
                    unsafe { std::env::remove_var(pegel_lane::LANE_LIST_VARIABLE) };
                }
                return None;
            }
        };
        if link.receive() == Some(READY_FOR_FILTER)
            && let Err(error) = seccomp::install_filter()
        {
            (self.note)(&format!(
                "system calls are not counted: cannot install the seccomp filter: {error}"
            ));
        }
        Some(link)
    }

    /// Creates the list of lanes and names it in the program's environment.
    fn create_lane_list(&self) -> Option<LaneList> {
        match LaneList::create() {
            Ok(list) => {
                // SAFETY: `Launch::run` requires a single-threaded caller.
                unsafe { std::env::set_var(pegel_lane::LANE_LIST_VARIABLE, list.path()) };
                Some(list)
            }
            Err(error) => {
                (self.note)(&format!("the summary has no MPI calls: {error}"));
                None
            }
        }
    }
}
