//! The output of this process: its thread, and the functions that the libraries offer.
//!
//! Each process has its own [`StatsdOutput`], found by its pid: a child of `fork` never waits for a
//! lock that a thread of its parent held. [`switch`], [`flush`] and [`counts`] never wait for the
//! thread.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
// This code runs in other people's programs, without further dependencies.
#[allow(clippy::disallowed_types)]
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pegel_lane::{is_disabled, process_lanes};

use super::changes::SentValues;
use super::config::{StatsdConfig, StatsdConfigError, StatsdServer, StatsdSocket};
use super::switches::{ProgramRules, SourceSwitches};

/// A server that cannot be reached is tried again after this time.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(30);

/// How long the exit of a process waits for the connection.
const EXIT_WAIT: Duration = Duration::from_millis(200);

/// What was sent since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatsdCounts {
    pub lines: u64,
    pub datagrams: u64,
    /// Datagrams that could not be sent, lines that are too long, and failed connections.
    pub errors: u64,
}

/// The output of this process, or that of its parent.
static CURRENT: AtomicPtr<StatsdOutput> = AtomicPtr::new(null_mut());

struct StatsdOutput {
    pid: u32,
    has_thread: AtomicBool,
    lines: AtomicU64,
    datagrams: AtomicU64,
    errors: AtomicU64,
    /// Rules that the program set and the next pass takes over.
    #[allow(clippy::disallowed_types)]
    new_rules: Mutex<ProgramRules>,
    #[allow(clippy::disallowed_types)]
    state: Mutex<StatsdOutputState>,
}

#[derive(Default)]
struct StatsdOutputState {
    config: Option<StatsdConfig>,
    socket: Option<StatsdSocket>,
    retry_at: Option<Instant>,
    switches: SourceSwitches,
    sent: SentValues,
}

/// Starts to send the values of this process, or changes the server.
pub fn start(config: StatsdConfig) -> Result<(), StatsdConfigError> {
    if is_disabled() {
        return Err(StatsdConfigError::Disabled);
    }
    let output = StatsdOutput::of_process();
    let interval = config.interval;
    {
        let mut state = lock(&output.state);
        state.config = Some(config);
        state.socket = None;
        state.retry_at = None;
    }
    if !output.has_thread.swap(true, Ordering::AcqRel) {
        flush_at_exit();
        let started = with_signals_blocked(|| {
            let thread = thread::Builder::new().name("pegel-statsd".to_owned());
            thread.spawn(move || output.run(interval))
        });
        if started.is_err() {
            output.has_thread.store(false, Ordering::Release);
            output.errors.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Starts if the environment names a server. The libraries call it with each new series; only the
/// first call in a process does anything.
pub fn start_from_environment() {
    static CHECKED: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    if CHECKED.swap(pid, Ordering::Relaxed) == pid {
        return;
    }
    let address = std::env::var("PEGEL_STATSD").unwrap_or_default();
    if address.is_empty() {
        return;
    }
    // A library must not print: a mistake is counted.
    if StatsdConfig::new(&address).and_then(start).is_err() {
        StatsdOutput::of_process()
            .errors
            .fetch_add(1, Ordering::Relaxed);
    }
}

/// Continues in a child of `fork` with the server and the switches of its parent, whose thread the
/// child does not have. Returns whether the parent sent values. For callers that run in the child
/// before anything else, as a hook of Python's `os.fork` does.
pub fn resume_after_fork() -> bool {
    // SAFETY: null, or a leaked box, which is never freed.
    let Some(parent) = (unsafe { CURRENT.load(Ordering::Acquire).as_ref() }) else {
        return false;
    };
    if parent.pid == std::process::id() || !parent.has_thread.load(Ordering::Acquire) {
        return false;
    }
    // A lock that a thread of the parent held is never released here.
    let mut rules = ProgramRules::new();
    let mut config = None;
    if let Ok(state) = parent.state.try_lock() {
        rules = state.switches.of_program().clone();
        config.clone_from(&state.config);
    }
    if let Ok(pending) = parent.new_rules.try_lock() {
        rules.extend(&pending);
    }
    *lock(&StatsdOutput::of_process().new_rules) = rules;
    match config {
        Some(config) => start(config).is_ok(),
        None => {
            start_from_environment();
            true
        }
    }
}

/// Turns the series on or off whose names match a pattern, in which `*` stands for any text. What a
/// series counts while it is off is not sent.
pub fn switch(pattern: &str, is_on: bool) {
    lock(&StatsdOutput::of_process().new_rules).set(pattern, is_on);
}

/// Sends what changed, now. Does nothing while the thread sends.
pub fn flush() {
    StatsdOutput::of_process().flush();
}

/// Sends what changed before the process ends. Waits for a moment if the thread is sending,
/// resolving a name, or about to.
pub fn flush_before_exit() {
    let (output, deadline) = (StatsdOutput::of_process(), Instant::now() + EXIT_WAIT);
    while !output.flush() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns what was sent since the start.
pub fn counts() -> StatsdCounts {
    let output = StatsdOutput::of_process();
    StatsdCounts {
        lines: output.lines.load(Ordering::Relaxed),
        datagrams: output.datagrams.load(Ordering::Relaxed),
        errors: output.errors.load(Ordering::Relaxed),
    }
}

#[allow(clippy::disallowed_types)]
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StatsdOutput {
    /// Returns the output of this process. That of a parent stays in place: its locks may be held.
    fn of_process() -> &'static StatsdOutput {
        let pid = std::process::id();
        loop {
            let current = CURRENT.load(Ordering::Acquire);
            // SAFETY: null, or a leaked box, which is never freed.
            if let Some(output) = unsafe { current.as_ref() }
                && output.pid == pid
            {
                return output;
            }
            let fresh: &'static StatsdOutput = Box::leak(Box::new(StatsdOutput::new(pid)));
            let fresh = std::ptr::from_ref(fresh).cast_mut();
            // If another thread was faster, its instance is used, and a few bytes are lost.
            let _ = CURRENT.compare_exchange(current, fresh, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    #[allow(clippy::disallowed_types)]
    fn new(pid: u32) -> StatsdOutput {
        StatsdOutput {
            pid,
            has_thread: AtomicBool::new(false),
            lines: AtomicU64::new(0),
            datagrams: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            new_rules: Mutex::new(ProgramRules::new()),
            state: Mutex::default(),
        }
    }

    /// Sends at each interval, until the process ends.
    fn run(&self, mut interval: Duration) {
        // A program that ends before the first interval has a connection then.
        self.connect(&mut lock(&self.state), true);
        loop {
            thread::sleep(interval);
            let mut state = lock(&self.state);
            self.pass(&mut state, true);
            interval = state
                .config
                .as_ref()
                .map_or(interval, |config| config.interval);
        }
    }

    /// Sends what changed, unless the thread does. Returns false if it has to be tried again.
    fn flush(&self) -> bool {
        let Ok(mut state) = self.state.try_lock() else {
            return false;
        };
        self.pass(&mut state, false);
        let is_waiting = state.socket.is_none() && state.retry_at.is_none();
        !(is_waiting && state.config.is_some())
    }

    /// Connects if there is no connection, at most once in [`RECONNECT_INTERVAL`].
    fn connect(&self, state: &mut StatsdOutputState, may_wait: bool) {
        let (Some(config), None) = (&state.config, &state.socket) else {
            return;
        };
        let now = Instant::now();
        let is_due = state.retry_at.is_none_or(|at| at <= now);
        if !is_due || !(may_wait || config.server.is_immediate()) {
            return;
        }
        match config.server.connect() {
            Ok(socket) => state.socket = Some(socket),
            Err(_) => {
                state.retry_at = Some(now + RECONNECT_INTERVAL);
                self.errors.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Sends what changed. Only the thread may wait for the resolution of a name.
    fn pass(&self, state: &mut StatsdOutputState, may_wait: bool) {
        let Some(config) = &state.config else {
            return;
        };
        state.switches.take_over(&mut lock(&self.new_rules));
        if let Some(path) = &config.sources {
            state.switches.reload(path);
        }
        self.connect(state, may_wait);
        let (Some(config), Some(socket)) = (&state.config, &state.socket) else {
            return;
        };
        let mut is_lost = false;
        let send = &mut |datagram: &[u8]| {
            let sent = socket.send(datagram);
            // The server is gone; a UNIX socket needs a new connection.
            is_lost |= sent.is_err() && matches!(socket, StatsdSocket::Unix(_));
            sent.is_ok()
        };
        let counts = state
            .sent
            .send_changes(process_lanes(), config, &state.switches, send);
        if is_lost {
            state.socket = None;
        }
        self.lines.fetch_add(counts.lines, Ordering::Relaxed);
        self.datagrams
            .fetch_add(counts.datagrams, Ordering::Relaxed);
        self.errors.fetch_add(counts.errors, Ordering::Relaxed);
    }
}

impl StatsdServer {
    /// Returns whether connecting needs no resolution of a name.
    fn is_immediate(&self) -> bool {
        match self {
            StatsdServer::Udp(address) => address.parse::<std::net::SocketAddr>().is_ok(),
            StatsdServer::Unix(_) => true,
        }
    }
}

/// Sends the last changes when the process exits.
fn flush_at_exit() {
    extern "C" fn at_exit() {
        flush_before_exit();
    }
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    if !IS_REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the function is part of this library, and does not unwind.
        let _: c_int = unsafe { libc::atexit(at_exit) };
    }
}

/// Runs `spawn` with all signals blocked, so that the new thread handles none of the program's.
fn with_signals_blocked<T>(spawn: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are local; sigfillset fills the first, pthread_sigmask the second.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = spawn();
    // SAFETY: `before` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut()) };
    result
}
