//! Under a shell with job control, the program stops, continues and is interrupted as without the
//! wrapper.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;

use parking_lot::Mutex;
use pegel_testkit::{TempDir, eventually, need};

use crate::run_mode::{RunMode, isolate};

/// A shell in a pseudo-terminal of its own.
struct PtyTerminal {
    keys: File,
    shell: Child,
    screen: Arc<Mutex<String>>,
    /// Number of bytes of output already examined.
    seen: usize,
}

impl PtyTerminal {
    fn open(home: &TempDir, bash: &std::path::Path) -> PtyTerminal {
        let (mut master, mut slave) = (0, 0);
        // Wide enough for the longest command, which the shell would scroll otherwise.
        let mut size = libc::winsize {
            ws_row: 24,
            ws_col: 2000,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let (null, size) = (std::ptr::null_mut(), &raw mut size);
        // SAFETY: both descriptors and the size are valid for the call; name and settings are null.
        let made = unsafe { libc::openpty(&mut master, &mut slave, null, null.cast(), size) };
        assert_eq!(made, 0, "a terminal");
        // SAFETY: the descriptor was just opened and has no other owner.
        let master = unsafe { OwnedFd::from_raw_fd(master) };
        // SAFETY: as above.
        let slave = unsafe { OwnedFd::from_raw_fd(slave) };
        let mut command = Command::new(bash);
        command.args(["--norc", "--noprofile", "-i"]);
        isolate(&mut command, home);
        command
            .env("PS1", "ready> ")
            .env("TERM", "dumb")
            .env("HISTFILE", "");
        let copy = || slave.try_clone().expect("a descriptor");
        command.stdin(copy()).stdout(copy()).stderr(copy());
        // SAFETY: a few system calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                // A test in the background ignores signals from the keyboard, which the shell would
                // inherit.
                for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTSTP] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            })
        };
        let shell = command.spawn().expect("bash starts");
        drop((command, slave));
        let keys = File::from(master);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut output, shown) = (keys.try_clone().expect("a descriptor"), screen.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..count]).replace('\r', "");
                shown.lock().push_str(&text);
            }
        });
        let mut terminal = PtyTerminal {
            keys,
            shell,
            screen,
            seen: 0,
        };
        terminal.wait_for("ready> ");
        terminal
    }

    fn press(&mut self, keys: &str) {
        self.keys
            .write_all(keys.as_bytes())
            .expect("the shell reads");
    }

    /// Waits until the text appears in the output after the part already examined.
    #[track_caller]
    fn wait_for(&mut self, text: &str) -> String {
        let screen = self.screen.clone();
        let seen = self.seen;
        let end = eventually(text, || {
            let screen = screen.lock();
            let found = screen[seen..].find(text);
            found.map(|at| seen + at + text.len()).ok_or(screen.clone())
        });
        self.seen = end;
        screen.lock()[seen..end].to_owned()
    }

    /// Brings the only job to the foreground, and returns once keys reach it.
    ///
    /// The shell prints the job's command before it hands over the terminal and continues the job:
    /// a key pressed in between would signal the shell, and Ctrl-Z before the continuation would
    /// have no effect.
    #[track_caller]
    fn foreground(&mut self, end_of_command: &str) {
        self.press("fg\r");
        self.wait_for(&format!("{end_of_command}\n"));
        eventually("the job runs in the foreground", || {
            let group = rustix::termios::tcgetpgrp(&self.keys).map_err(|e| e.to_string())?;
            let group = group.as_raw_nonzero().get();
            if u32::try_from(group) == Ok(self.shell.id()) {
                return Err("the shell has the terminal".to_owned());
            }
            let states = process_states(group);
            let runs = !states.is_empty() && !states.contains(&'T');
            runs.then_some(()).ok_or(format!("states {states:?}"))
        });
    }

    /// Types a command and waits for the next prompt.
    fn run(&mut self, command: &str) {
        self.press(&format!("{command}\r"));
        self.wait_for("\nready> ");
    }

    /// Returns the output without the wrapper's own words and its final line.
    fn transcript(&self, words: &str) -> String {
        let mut screen = self.screen.lock().replace(words, "");
        while let Some(at) = screen.find("pegel: ") {
            let end = screen[at..]
                .find('\n')
                .map_or(screen.len(), |length| at + length + 1);
            screen.replace_range(at..end, "");
        }
        let lines = screen.lines();
        lines.map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

impl Drop for PtyTerminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Returns the state letter of each process in a process group.
fn process_states(group: i32) -> Vec<char> {
    let processes = std::fs::read_dir("/proc").expect("procfs");
    let stats = processes
        .flatten()
        .filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
    stats
        .filter_map(|stat| {
            let mut fields = stat.rsplit_once(") ")?.1.split(' ');
            let (state, of_group) = (fields.next()?.chars().next()?, fields.nth(1)?);
            (of_group.parse() == Ok(group)).then_some(state)
        })
        .collect()
}

/// Starts a program in the foreground and stops it with Ctrl-Z.
fn with_a_stopped_job(words: &str, home: &TempDir, bash: &std::path::Path) -> PtyTerminal {
    let mut terminal = PtyTerminal::open(home, bash);
    terminal.press(&format!("{words}sh -c 'echo \"\"up; exec sleep 1000'\r"));
    terminal.wait_for("\nup\n");
    terminal.press("\u{1a}");
    terminal.wait_for("Stopped");
    terminal.wait_for("\nready> ");
    terminal
}

fn session(way: RunMode, home: &TempDir, bash: &std::path::Path) -> (String, String) {
    let words: String = way.prefix().iter().map(|word| format!("{word} ")).collect();
    let mut terminal = with_a_stopped_job(&words, home, bash);
    terminal.run("echo stopped=$?; jobs | cut -c1-20");
    terminal.foreground("sleep 1000'");
    // Twice: the shell must notice the second stop too.
    terminal.press("\u{1a}");
    terminal.wait_for("Stopped");
    terminal.wait_for("\nready> ");
    terminal.foreground("sleep 1000'");
    terminal.press("\u{3}");
    terminal.wait_for("\nready> ");
    terminal.run("echo interrupted=$?");
    terminal.press(&format!(
        "{words}sh -c 'kill -STOP $$; echo \"\"continued'\r"
    ));
    terminal.wait_for("Stopped");
    terminal.wait_for("\nready> ");
    terminal.press("fg\r");
    terminal.wait_for("\ncontinued\n");
    terminal.wait_for("ready> ");
    terminal.run(&format!(
        "{words}sh -c 'test -t 0 && test -t 1 && test -t 2 && echo terminal; stty size; ps -o stat= -p $$ | tr -dc +; echo'"
    ));
    terminal.press(&format!("{words}sh -c 'echo \"\"up; exec cat'\r"));
    terminal.wait_for("\nup\n");
    terminal.press("typed\r");
    terminal.wait_for("typed\ntyped\n");
    terminal.press("\u{4}");
    terminal.wait_for("ready> ");
    terminal.press(&format!(
        "{words}sh -c 'stty -echo; read x; stty echo; echo \"got $x\"'\r"
    ));
    terminal.wait_for("\n");
    eventually("the echo is off", || {
        let settings = rustix::termios::tcgetattr(&terminal.keys).map_err(|e| e.to_string())?;
        let is_on = settings
            .local_modes
            .contains(rustix::termios::LocalModes::ECHO);
        (!is_on).then_some(()).ok_or("it is on".to_owned())
    });
    terminal.press("secret\r");
    terminal.wait_for("got secret\n");
    terminal.wait_for("ready> ");
    terminal.run("echo last=$?");
    (terminal.transcript(&words), terminal.screen.lock().clone())
}

#[test]
fn job_control_works_as_without_the_wrapper() {
    let Some(bash) = need("bash") else {
        return;
    };
    let home = TempDir::new();
    let (plain, _) = session(RunMode::Plain, &home, &bash);
    for words in ["stopped=148", "interrupted=130", "terminal", "last=0"] {
        assert!(plain.contains(words), "{words}: {plain}");
    }
    for way in RunMode::with_held_exit() {
        let (transcript, screen) = session(way, &home, &bash);
        assert_eq!(transcript, plain, "{way:?}");
        // One summary per program.
        let summaries = screen.matches("pegel: sh: ").count();
        assert_eq!(summaries, 5, "{way:?}: {screen}");
    }
}

#[test]
fn a_summary_is_printed_before_the_prompt_unless_it_is_not_wanted() {
    let Some(bash) = need("bash") else {
        return;
    };
    let home = TempDir::new();
    for way in RunMode::with_held_exit() {
        let words: String = way.prefix().iter().map(|word| format!("{word} ")).collect();
        let mut terminal = PtyTerminal::open(&home, &bash);
        terminal.press(&format!("{words}sh -c 'exit 3'\r"));
        terminal.wait_for("pegel: sh: ");
        terminal.wait_for("exited with status 3\n");
        terminal.wait_for("pegel:   CPU ");
        terminal.wait_for("\nready> ");
        terminal.run("echo status=$?");
        for quiet in [
            words.replace(" run ", " run --quiet "),
            format!("PEGEL_SUMMARY=0 {words}"),
        ] {
            terminal.run(&format!("{quiet}true"));
        }
        let screen = terminal.screen.lock().clone();
        assert!(screen.contains("\nstatus=3\n"), "{way:?}: {screen}");
        assert!(!screen.contains("pegel: true"), "{way:?}: {screen}");
    }
}

/// Runs jobs in the background, in a pipeline, and in a window that is resized.
fn background(way: RunMode, home: &TempDir, bash: &std::path::Path) -> String {
    let words: String = way.prefix().iter().map(|word| format!("{word} ")).collect();
    let mut terminal = with_a_stopped_job(&words, home, bash);
    terminal.run("bg");
    terminal.run("echo running=$(jobs -r | wc -l)");
    terminal.foreground("sleep 1000'");
    terminal.press("\u{1c}");
    terminal.wait_for("Quit");
    terminal.wait_for("ready> ");
    terminal.run("echo quit=$?");
    // It reads from the terminal, which is permitted in the foreground only.
    terminal.run(&format!("{words}cat &"));
    terminal.run("until jobs -s | grep -q cat; do sleep 0.02; done; jobs | cut -c1-20");
    terminal.foreground("cat");
    terminal.press("typed\r");
    terminal.wait_for("typed\ntyped\n");
    terminal.press("\u{4}");
    terminal.wait_for("ready> ");
    // A whole pipeline is one job.
    terminal.press(&format!(
        "{words}sh -c 'echo \"\"up >&2; exec sleep 1000' | {words}cat\r"
    ));
    terminal.wait_for("\nup\n");
    terminal.press("\u{1a}");
    terminal.wait_for("Stopped");
    terminal.wait_for("\nready> ");
    terminal.run("echo stopped=$(jobs -s | wc -l)");
    terminal.foreground("cat");
    terminal.press("\u{3}");
    terminal.wait_for("\nready> ");
    terminal.run("echo interrupted=$?");
    terminal.press(&format!(
        "{words}sh -c 'trap \"stty size; exit 5\" WINCH; echo \"\"up; while :; do sleep 0.05; done'\r"
    ));
    terminal.wait_for("\nup\n");
    let mut size = rustix::termios::tcgetwinsize(&terminal.keys).expect("a terminal");
    size.ws_row = 31;
    rustix::termios::tcsetwinsize(&terminal.keys, size).expect("a terminal");
    terminal.wait_for("31 2000\n");
    terminal.wait_for("ready> ");
    terminal.run("echo resized=$?");
    // Process IDs of background jobs differ between runs, and bash reports stops, with empty lines,
    // at varying times.
    let is_certain =
        |line: &&str| !line.is_empty() && !line.starts_with("[1] ") && !line.ends_with("  cat");
    let transcript = terminal.transcript(&words);
    let lines: Vec<&str> = transcript.lines().filter(is_certain).collect();
    lines.join("\n")
}

#[test]
fn background_jobs_work_as_without_the_wrapper() {
    let Some(bash) = need("bash") else {
        return;
    };
    let home = TempDir::new();
    let plain = background(RunMode::Plain, &home, &bash);
    for words in [
        "running=1",
        "quit=131",
        "stopped=1",
        "interrupted=130",
        "resized=5",
    ] {
        assert!(plain.contains(words), "{words}: {plain}");
    }
    for way in RunMode::wrapped() {
        assert_eq!(background(way, &home, &bash), plain, "{way:?}");
    }
}
