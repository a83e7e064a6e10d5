//! Programs with privileges of their own (set-uid, set-gid, file capabilities) get them, however
//! they are started.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::chown;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use pegel_testkit::{ChildProcess, FinishedProcess, OtherUser, TempDir, need_hardware, set_mode};

use crate::PEGEL;
use crate::run_mode::{BOUND, RunMode, compile, isolate};

/// An unprivileged user, and a directory in which that user can reach everything.
struct SetUidSetup {
    home: TempDir,
    pegel: PathBuf,
    uid: u32,
}

impl SetUidSetup {
    #[track_caller]
    fn new() -> Option<SetUidSetup> {
        OtherUser::new()?;
        let home = TempDir::new();
        set_mode(home.path(), 0o755);
        let (pegel, lanes) = (home.join("pegel"), home.join("lanes"));
        PEGEL.copy_to(&pegel);
        set_mode(&pegel, 0o755);
        fs::create_dir(&lanes).expect("made");
        set_mode(&lanes, 0o1777);
        let uid = OtherUser::UID;
        Some(SetUidSetup { home, pegel, uid })
    }

    /// Installs a program with an owner and a mode.
    #[track_caller]
    fn program(&self, name: &str, owner: u32, mode: u32) -> Option<String> {
        let program = compile(&self.home, name, &[])?;
        let named = self.home.join(format!("{name}.{owner}.{mode:o}"));
        fs::rename(&program, &named).expect("ours");
        chown(&named, Some(owner), Some(owner)).expect("given");
        set_mode(&named, mode);
        Some(named.display().to_string())
    }

    /// Builds a program that executes others in several ways, and one that is set-user-ID root.
    #[track_caller]
    fn execs_and_set_uid(&self) -> Option<(String, String)> {
        let execs = self.program("execs", 0, 0o755)?;
        Some((execs, self.program("ids", 0, 0o4755)?))
    }

    fn run(&self, way: RunMode, uid: u32, options: &[&str], argv: &[&str]) -> FinishedProcess {
        let mut words = way.prefix_with(&self.pegel);
        if way != RunMode::Plain {
            words.splice(2..2, options.iter().map(|word| (*word).to_owned()));
        }
        words.extend(argv.iter().map(|word| (*word).to_owned()));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        isolate(&mut command, &self.home);
        command
            .uid(uid)
            .gid(uid)
            .env("PATH", "/usr/bin:/bin")
            .current_dir("/");
        ChildProcess::start(&mut command).wait(BOUND)
    }

    /// Runs directly, as a child of a shell and by exec: the result is the same as without the
    /// wrapper.
    #[track_caller]
    fn assert_same(&self, uid: u32, program: &str, line: &str) {
        let script = format!("{program}; {program} & wait; exec {program}");
        for argv in [&[program][..], &["sh", "-c", &script]] {
            self.assert_same_command(uid, argv, line);
        }
    }

    #[track_caller]
    fn assert_same_command(&self, uid: u32, argv: &[&str], line: &str) {
        let plain = self.run(RunMode::Plain, uid, &[], argv);
        assert!(plain.stdout.contains(line), "{line}: {plain}");
        for way in RunMode::wrapped() {
            // An unprivileged user has no eBPF; ptrace is tested separately below.
            if way == RunMode::Ebpf && uid != 0 {
                continue;
            }
            let found = self.run(way, uid, &[], argv);
            assert_eq!(found.stdout, plain.stdout, "{way:?} {argv:?}");
            assert_eq!(found.status, plain.status, "{way:?} {argv:?}");
            assert_eq!(found.stderr, plain.stderr, "{way:?} {argv:?}");
        }
    }
}

#[test]
fn set_uid_and_set_gid_programs_get_their_privileges() {
    let Some(scene) = SetUidSetup::new() else {
        return;
    };
    let user = scene.uid;
    for (caller, owner, mode, line) in [
        (user, 0, 0o4755, SET_UID_LINE),
        (
            user,
            0,
            0o2755,
            "uid 65534 euid 65534 gid 65534 egid 0 secure 1\n",
        ),
        (
            user,
            0,
            0o6711,
            "uid 65534 euid 0 gid 65534 egid 0 secure 1\n",
        ),
        (
            user,
            0,
            0o755,
            "uid 65534 euid 65534 gid 65534 egid 65534 secure 0\n",
        ),
        (
            0,
            user,
            0o6755,
            "uid 0 euid 65534 gid 0 egid 65534 secure 1\n",
        ),
    ] {
        let Some(program) = scene.program("ids", owner, mode) else {
            return;
        };
        scene.assert_same(caller, &program, line);
    }
}

const SET_UID_LINE: &str = "uid 65534 euid 0 gid 65534 egid 65534 secure 1\n";

#[test]
fn privileges_are_granted_however_the_program_is_named() {
    let Some(scene) = SetUidSetup::new() else {
        return;
    };
    let Some((execs, ids)) = scene.execs_and_set_uid() else {
        return;
    };
    for way in ["path", "proc", "thread", "dev", "root", "empty"] {
        scene.assert_same_command(scene.uid, &[&execs, way, &ids], SET_UID_LINE);
    }
    // From a program whose memory is not readable, so that the path is unknown.
    let execs = scene.program("execs", 0, 0o711).expect("compiled before");
    scene.assert_same_command(scene.uid, &[&execs, "path", &ids], SET_UID_LINE);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn privileges_are_granted_by_32_bit_calls() {
    let Some(scene) = SetUidSetup::new() else {
        return;
    };
    let Some((execs, ids)) = scene.execs_and_set_uid() else {
        return;
    };
    // Without libraries: 32-bit ones are rarely installed.
    let alone = ["-m32", "-nostdlib", "-static", "-fno-pic", "-no-pie"];
    let Some(small) = compile(&scene.home, "execs32", &alone) else {
        return;
    };
    set_mode(&small, 0o755);
    let runs = Command::new(&small)
        .status()
        .is_ok_and(|status| status.code() == Some(7));
    if need_hardware(runs, "kernel that runs programs of 32 bits").is_none() {
        return;
    }
    let small = small.display().to_string();
    for argv in [
        &[&*small, &*ids][..],
        &[&execs, "compat", &ids],
        &[&execs, "compatat", &ids],
    ] {
        scene.assert_same_command(scene.uid, argv, SET_UID_LINE);
    }
}

#[test]
fn a_program_with_file_capabilities_gets_them() {
    let Some(scene) = SetUidSetup::new() else {
        return;
    };
    let Some(program) = scene.program("ids", 0, 0o755) else {
        return;
    };
    // CAP_NET_BIND_SERVICE with the effective flag, in revision 2 of the format.
    let words = [0x0200_0001_u32, 1 << 10, 0, 0, 0].map(u32::to_le_bytes);
    let path = CString::new(Path::new(&program).as_os_str().as_bytes()).expect("a path");
    let value = words.concat();
    let name = c"security.capability";
    // SAFETY: both strings are NUL-terminated, and the length is that of the value.
    let set = unsafe {
        libc::setxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    if need_hardware(set == 0, "file system that keeps capabilities").is_none() {
        return;
    }
    scene.assert_same(scene.uid, &program, "CapEff:\t0000000000000400\n");
}

/// Other user IDs, a child, its exit code and its signal.
#[test]
fn a_program_like_sudo_works() {
    let Some(scene) = SetUidSetup::new() else {
        return;
    };
    let Some(sudo) = scene.program("like_sudo", 0, 0o4755) else {
        return;
    };
    let script =
        "id -u; id -g; cat /proc/self/status | grep CapEff; touch /proc/self/comm && exit 9";
    for (inner, code, signal) in [(script, Some(9), None), ("kill -TERM $$", None, Some(15))] {
        let outer = format!("{sudo} sh -c '{inner}'; echo $?");
        for argv in [vec![&*sudo, "sh", "-c", inner], vec!["sh", "-c", &outer]] {
            let plain = scene.run(RunMode::Plain, scene.uid, &[], &argv);
            if argv.len() == 4 {
                assert_eq!(
                    (plain.code(), plain.status.signal()),
                    (code, signal),
                    "{plain}"
                );
            }
            for way in [RunMode::Wrapped, RunMode::Ptrace] {
                let found = scene.run(way, scene.uid, &[], &argv);
                assert_eq!(found.stdout, plain.stdout, "{way:?} {argv:?}");
                assert_eq!(found.status, plain.status, "{way:?} {argv:?}");
                assert_eq!(found.stderr, plain.stderr, "{way:?} {argv:?}");
            }
        }
    }
    let said = scene.run(RunMode::Ptrace, scene.uid, &["-v"], &[&sudo, "true"]);
    assert!(said.stderr.contains("its calls are not counted"), "{said}");
}

/// Like a shell, reports "command not found" even if a directory of the path cannot be searched.
#[test]
fn a_directory_that_may_not_be_searched_hides_the_command() {
    let Some(scene) = SetUidSetup::new() else {
        return;
    };
    let closed = scene.home.join("closed");
    fs::create_dir(&closed).expect("made");
    let command = closed.join("secret-command");
    fs::write(&command, "#!/bin/sh\n").expect("written");
    set_mode(&command, 0o755);
    set_mode(&closed, 0o700);
    for options in [&["--"][..], &["-s", "--"]] {
        for (name, code, words) in [
            ("secret-command", 127, "No such file or directory"),
            ("no-such-command", 127, "No such file or directory"),
            (&*command.display().to_string(), 126, "Permission denied"),
        ] {
            let mut wrapped = Command::new(&scene.pegel);
            wrapped.arg("run").args(options).arg(name);
            isolate(&mut wrapped, &scene.home);
            let path = format!("{}:/usr/bin:/bin", closed.display());
            wrapped
                .env("PATH", path)
                .uid(scene.uid)
                .gid(scene.uid)
                .current_dir("/");
            let finished = ChildProcess::start(&mut wrapped).wait(BOUND);
            assert_eq!(finished.code(), Some(code), "{finished}");
            let line = format!("pegel: cannot run {name}: {words}");
            assert!(finished.stderr.starts_with(&line), "{finished}");
        }
    }
}
