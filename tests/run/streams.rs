//! Data through a program's pipes arrives complete and in order, with every method of counting.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use pegel_testkit::{ChildProcess, Rng, TempDir};

use crate::run_mode::{BOUND, RunMode, isolate, pegel, read_report};

const BLOCK: usize = 1 << 20;
const BLOCKS: u64 = 1000;

/// A block whose copies are distinguished by a number.
struct Blocks(Vec<u8>);

impl Blocks {
    fn new() -> Blocks {
        let mut rng = Rng::new(7);
        let words = (0..BLOCK / 8).map(|_| rng.next_u64().to_le_bytes());
        Blocks(words.flatten().collect())
    }

    fn numbered(&mut self, number: u64) -> &[u8] {
        self.0[..8].copy_from_slice(&number.to_le_bytes());
        &self.0
    }
}

#[test]
fn a_gigabyte_passes_from_input_to_output() {
    for way in RunMode::wrapped() {
        let home = TempDir::new();
        let mut child = way
            .command(&home, &["cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut blocks = Blocks::new();
                for number in 0..BLOCKS {
                    input.write_all(blocks.numbered(number)).expect("taken");
                }
            });
            let (mut blocks, mut found) = (Blocks::new(), vec![0; BLOCK]);
            for number in 0..BLOCKS {
                output.read_exact(&mut found).expect("a block");
                let is_same = found == blocks.numbered(number);
                assert!(is_same, "{way:?}: block {number}");
            }
            assert_eq!(output.read(&mut found).expect("the end"), 0, "{way:?}");
        });
        assert!(child.wait().expect("ended").success(), "{way:?}");
    }
}

/// Between two counted programs: every byte is counted once on each side.
#[test]
fn a_gigabyte_passes_between_two_programs() {
    let script = "dd if=/dev/zero bs=1M count=1000 status=none | { dd of=/dev/null bs=1M status=none count=900 iflag=fullblock; wc -c; }";
    for way in RunMode::wrapped() {
        let home = TempDir::new();
        let mut command = match way {
            RunMode::Wrapped => way.command(&home, &["sh", "-c", script]),
            _ => {
                let words = way.prefix();
                let options = [&words[2..], &["sh".into(), "-c".into(), script.into()]].concat();
                let report = ["--report".to_owned(), "report.json".to_owned()];
                pegel(&home, &[&report[..], &options].concat())
            }
        };
        let finished = ChildProcess::start(&mut command).wait(BOUND);
        assert_eq!(finished.stdout, "104857600\n", "{way:?}: {finished}");
        assert_eq!((finished.code(), finished.stderr.as_str()), (Some(0), ""));
        if way != RunMode::Wrapped {
            let calls = read_report(&home.join("report.json"));
            // The first program writes all bytes, the second nine tenths of them, and the third a
            // number.
            let (all, part) = (1000 << 20, 900 << 20);
            assert_eq!(calls["write"][1], all + part + 10, "{way:?}: {calls:?}");
            // Read once from the device and once from the pipe, plus the headers of libraries.
            let more = calls["read"][1].checked_sub(2 * all);
            assert!(
                more.is_some_and(|more| more < 1 << 20),
                "{way:?}: {calls:?}"
            );
        }
    }
}

#[test]
fn a_broken_pipe_ends_the_program() {
    let home = TempDir::new();
    for way in [vec![RunMode::Plain], RunMode::wrapped()].concat() {
        let words = way.prefix().join(" ");
        let script = format!("{{ {words} yes; echo $? >&2; }} | head -n 1");
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        isolate(&mut command, &home);
        let finished = ChildProcess::start(&mut command).wait(BOUND);
        assert_eq!(finished.stdout, "y\n", "{way:?}");
        assert_eq!(finished.stderr, "141\n", "{way:?}");
    }
}

/// Closes descriptors of concurrent tests that a child would inherit.
fn close_inherited(command: &mut Command) {
    let close = || {
        // SAFETY: only sets flags of descriptors, which is async-signal-safe after fork.
        match unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one system call only, which is async-signal-safe after fork.
    unsafe { command.pre_exec(close) };
}

#[test]
fn closed_descriptors_stay_closed() {
    let home = TempDir::new();
    let inner = "ls /proc/self/fd | tr '\\n' ' '; cat; echo $?";
    for close in [
        "<&-",
        ">&-",
        "2>&-",
        "<&- 2>&-",
        "<&- >&- 2>&-",
        "</dev/null",
    ] {
        let run = |way: RunMode, option: &str| {
            let words = way.prefix().join(" ").replacen(" run ", option, 1);
            let script =
                format!("exec 3>result; {words} sh -c \"{{ {inner}; }} >&3 2>/dev/null\" {close}");
            let mut command = Command::new("sh");
            command.args(["-c", &script]);
            isolate(&mut command, &home);
            close_inherited(&mut command);
            let finished = ChildProcess::start(&mut command).wait(BOUND);
            let result = std::fs::read_to_string(home.join("result")).expect("written");
            (finished.status, result)
        };
        let plain = run(RunMode::Plain, "");
        for way in RunMode::wrapped() {
            assert_eq!(run(way, " run "), plain, "{way:?} {close}");
            // Messages for a closed stderr must not reach a file that reuses the descriptor.
            assert_eq!(run(way, " run -v "), plain, "{way:?} -v {close}");
        }
    }
}
