//! The programs accept TAU's options and no others.

use std::os::unix::fs::symlink;
use std::process::Command;

use pegel_testkit::{ChildProcess, TempDir, isolate};

use super::user::BOUND;
use crate::PEGEL;

#[test]
fn only_taus_options_are_accepted() {
    let home = TempDir::new();
    let run = |name: &str, args: &[&str]| {
        let program = home.join(name);
        if !program.exists() {
            symlink(PEGEL.path(), &program).expect("a link");
        }
        let mut command = Command::new(program);
        isolate(&mut command, &home);
        ChildProcess::start(command.args(args)).wait(BOUND)
    };
    for option in [
        "--listen=127.0.0.1:0",
        "--once",
        "-v",
        "agent",
        "--port-search",
    ] {
        let finished = run("tau_metric_proxy", &[option]);
        assert_eq!(finished.code(), Some(2), "{option}: {finished}");
        assert!(
            finished.stderr.starts_with("tau_metric_proxy: "),
            "{finished}"
        );
        assert!(
            finished.stderr.contains("\ntau_metric_proxy [-h]\n"),
            "{finished}"
        );
    }
    let usage = "tau_metric_proxy_run -m -s -v -h -u [PATH] -S [PID] -- [COMMAND]\n";
    for args in [
        &[][..],
        &["-s"],
        &["-s", "--"],
        &["--method", "ptrace", "--", "true"],
        &["-j", "job", "--", "true"],
        &["--agent", "--", "true"],
        &["--report=x", "-s", "--", "true"],
        &["-u"],
        &["-S"],
        &["-S", "word"],
        &["--help"],
        &["-x", "--", "true"],
    ] {
        let finished = run("tau_metric_proxy_run", args);
        assert_eq!(finished.code(), Some(2), "{args:?}: {finished}");
        assert!(
            finished.stderr.starts_with("tau_metric_proxy_run: "),
            "{finished}"
        );
        assert!(finished.stderr.contains(usage), "{args:?}: {finished}");
        assert_eq!(finished.stdout, "");
    }
    for (name, line) in [
        ("tau_metric_proxy", "tau_metric_proxy [-h]\n"),
        ("tau_metric_proxy_run", usage),
    ] {
        let help = run(name, &["-h"]);
        assert_eq!((help.code(), help.stderr.as_str()), (Some(0), ""));
        assert!(help.stdout.starts_with(line), "{help}");
    }
    let help = run("tau_metric_proxy_run", &["-h"]).stdout;
    for option in ["-m", "-s", "-S [PID]", "-u [PATH]", "-v", "-h"] {
        assert!(help.contains(&format!("\n{option}: ")), "{option}: {help}");
    }
}
