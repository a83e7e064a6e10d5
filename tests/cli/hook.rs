//! `pegel hook`: the generated files are run as their engines run them, with a program in the place
//! of `pegel` that records its arguments.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{ChildProcess, eventually, need, need_peer, set_mode};
use rustix::process::Signal;

use crate::PEGEL;
use crate::fake_pegel::{FakePegel, finish, succeed};

const PLACE: &str = "file:///data/it's $HOME";

/// Installs the files of an engine in `hooks` below the home of the fake program.
fn install(fake: &FakePegel, engine: &str, args: &[&str]) -> PathBuf {
    let dir = fake.home.join("hooks");
    let fixed = ["hook", engine, "--to", PLACE, "--install"];
    succeed(PEGEL.command(&fake.home).args(fixed).arg(&dir).args(args));
    dir
}

/// Returns what follows the program's options in a call: `[--to][PLACE]` is checked.
fn started(call: &str) -> &str {
    let start = format!("[session][start][--to][{PLACE}]");
    call.strip_prefix(&start)
        .unwrap_or_else(|| panic!("{call}"))
}

#[test]
fn every_script_is_valid_shell() {
    let shellcheck = need("shellcheck");
    for engine in ["tes", "azure-batch", "cromwell", "slurm"] {
        let fake = FakePegel::new();
        let bundle: &[&str] = match engine {
            "tes" | "azure-batch" => &["--bundle", "https://host/p q.tar.gz"],
            _ => &[],
        };
        let dir = install(
            &fake,
            engine,
            &[bundle, &["--pegel", "/opt/two words/pegel"]].concat(),
        );
        let scripts = fs::read_dir(dir).expect("installed");
        let scripts: Vec<PathBuf> = scripts
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "sh"))
            .collect();
        assert!(!scripts.is_empty(), "{engine}");
        for script in scripts {
            let text = fs::read_to_string(&script).expect("read");
            let is_bash = text.starts_with("#!/bin/bash");
            let shells: &[&str] = if is_bash { &["bash"] } else { &["sh", "bash"] };
            for shell in shells {
                succeed(Command::new(shell).arg("-n").arg(&script));
            }
            if let Some(shellcheck) = &shellcheck {
                // The place has a dollar sign that must not be expanded (SC2016).
                let dialect = if is_bash { "bash" } else { "sh" };
                succeed(
                    Command::new(shellcheck)
                        .args(["-s", dialect, "-e", "SC2016"])
                        .arg(&script),
                );
            }
        }
    }
}

#[test]
fn printed_files_are_those_that_are_installed() {
    let fake = FakePegel::new();
    for engine in ["tes", "nextflow", "snakemake"] {
        let dir = install(&fake, engine, &[]);
        let args = ["hook", engine, "--to", PLACE];
        let printed = succeed(PEGEL.command(&fake.home).args(args)).stdout;
        let files = fs::read_dir(&dir).expect("installed");
        let files: Vec<_> = files.map(|entry| entry.expect("an entry").path()).collect();
        let is_same = |path: &PathBuf| fs::read_to_string(path).expect("read") == printed;
        assert!(files.iter().any(is_same), "{engine}: {printed}");
    }
    for engine in ["azure-batch", "cromwell", "slurm"] {
        let printed = succeed(PEGEL.command(&fake.home).args(["hook", engine])).stdout;
        assert!(printed.contains("# ======== "), "{printed}");
    }
}

#[test]
fn files_of_others_and_credentials_stay_out() {
    let fake = FakePegel::new();
    let dir = install(&fake, "slurm", &[]);
    // Our own files are replaced.
    install(&fake, "slurm", &[]);
    fs::write(dir.join("pegel-epilog.sh"), "# the site's own\n").expect("written");
    fs::remove_file(dir.join("pegel-task-prolog.sh")).expect("removed");
    let args = ["hook", "slurm", "--install", "hooks"];
    let refused = finish(PEGEL.command(&fake.home).args(args));
    assert_eq!(refused.code(), Some(1), "{refused}");
    assert!(!dir.join("pegel-task-prolog.sh").exists());
    succeed(PEGEL.command(&fake.home).args(args).arg("--force"));
    for place in ["azblob://a/c?sig=planted", "https://u:planted@h/x"] {
        let args = ["hook", "tes", "--to", place];
        let refused = finish(PEGEL.command(&fake.home).args(args));
        assert_eq!(refused.code(), Some(2), "{refused}");
        assert!(!refused.stderr.contains("planted"), "{refused}");
    }
}

/// Prepares a node of Azure Batch and returns its shared directory.
fn azure_node(fake: &FakePegel) -> PathBuf {
    let dir = install(fake, "azure-batch", &[]);
    let shared = fake.home.join("shared");
    // The resource files of the start task.
    fs::copy(fake.path(), dir.join("pegel")).expect("copied");
    let mut command = fake.command("bash");
    command
        .args(["-c", "bash start-task.sh"])
        .env("AZ_BATCH_NODE_SHARED_DIR", &shared)
        .current_dir(&dir);
    succeed(&mut command);
    shared.join("pegel/pegel-task.sh")
}

#[test]
fn azure_batch_runs_a_command_between_start_and_stop() {
    let fake = FakePegel::new();
    let wrapper = azure_node(&fake);
    let line = format!(
        "\"{}\" sh -c 'cat; echo \"$1\" >&2; exit 7' x 'a  b'",
        wrapper.display()
    );
    let mut command = fake.command("bash");
    command
        .args(["-c", &format!("echo input | {line}")])
        .env("AZ_BATCH_NODE_SHARED_DIR", fake.home.join("shared"));
    let finished = finish(&mut command);
    assert_eq!(finished.code(), Some(7), "{finished}");
    assert_eq!(
        (&*finished.stdout, &*finished.stderr),
        ("input\n", "a  b\n")
    );
    let calls = fake.calls();
    assert!(started(&calls[0]).starts_with("[--pid]["), "{calls:?}");
    assert!(
        calls[1].starts_with("[session][stop][--exit-status][7]"),
        "{calls:?}"
    );
    assert_eq!(calls.len(), 2);
}

#[test]
fn a_wrapped_task_gets_signals_and_its_end_is_recorded() {
    let fake = FakePegel::new();
    let wrapper = azure_node(&fake);
    let script = "trap 'echo got TERM; exit 5' TERM; trap - INT; touch ready; \
                  while :; do sleep 0.05; done";
    let mut command = fake.command(&wrapper);
    command
        .args(["bash", "-c", script])
        .env("PEGEL_SLOT", "slot 1")
        .env("AZ_BATCH_NODE_SHARED_DIR", fake.home.join("shared"));
    let child = ChildProcess::start(&mut command);
    eventually("the command runs", || fs::metadata(fake.home.join("ready")));
    child.signal(Signal::TERM);
    let finished = child.wait(Duration::from_secs(30));
    assert_eq!(finished.code(), Some(5), "{finished}");
    assert_eq!(finished.stdout, "got TERM\n");
    let calls = fake.calls();
    let stopped = "[session][stop][--slot][slot 1][--exit-status][5]";
    assert!(calls[1].starts_with(stopped), "{calls:?}");
    // SIGINT is not ignored by the command, as it would be by a plain background command.
    let mut command = fake.command(&wrapper);
    command.args(["sh", "-c", "kill -INT $$; exit 0"]);
    assert_eq!(finish(&mut command).code(), Some(130));
}

#[test]
fn a_task_is_not_disturbed_by_a_pegel_that_fails_or_is_missing() {
    let fake = FakePegel::new();
    let wrapper = azure_node(&fake);
    let run = |status: &str| {
        let mut command = fake.command(&wrapper);
        command
            .args(["sh", "-c", "echo done"])
            .env("AZ_BATCH_NODE_SHARED_DIR", fake.home.join("shared"))
            .env("FAKE_PEGEL_STATUS", status);
        let finished = succeed(&mut command);
        assert_eq!((&*finished.stdout, &*finished.stderr), ("done\n", ""));
    };
    run("3");
    fs::remove_file(fake.home.join("shared/pegel/pegel")).expect("removed");
    run("0");
}

/// Another user could have planted it.
#[test]
fn a_program_that_others_can_replace_is_not_run() {
    let fake = FakePegel::new();
    let shared = fake.home.join("shared");
    let planted = shared.join("pegel");
    fs::create_dir_all(&planted).expect("created");
    fs::copy(fake.path(), planted.join("pegel")).expect("copied");
    let dir = install(&fake, "azure-batch", &[]);
    for (mode, calls) in [(0o777, 0), (0o755, 2)] {
        set_mode(&planted, mode);
        let mut command = fake.command("bash");
        command.env("AZ_BATCH_NODE_SHARED_DIR", &shared);
        let finished = finish(command.arg(dir.join("pegel-task.sh")).arg("true"));
        assert_eq!(finished.code(), Some(0), "{finished}");
        assert_eq!(fake.calls().len(), calls, "{:?}", fake.calls());
    }
}

#[test]
fn cromwell_records_the_status_in_the_file_of_the_task() {
    let fake = FakePegel::new();
    let dir = install(&fake, "cromwell", &[]);
    let call = fake.home.join("cromwell-executions/wf/0c1d/call-align");
    fs::create_dir_all(call.join("execution")).expect("created");
    let script = call.join("execution/script");
    fs::write(&script, "echo 9 > \"${0%/*}/rc\"\n").expect("written");
    let conf = fs::read_to_string(dir.join("pegel.conf")).expect("installed");
    let mut lines = conf
        .lines()
        .skip_while(|line| !line.starts_with("backend."));
    let line = lines.nth(1).expect("the command").trim();
    // Cromwell expands the placeholders and runs the line with its own working directory.
    let line = line
        .replace("${cwd}", call.to_str().expect("UTF-8"))
        .replace("${script}", script.to_str().expect("UTF-8"));
    let finished = succeed(fake.command("bash").args(["-c", &line]));
    let calls = fake.calls();
    assert_eq!(calls.len(), 2, "{finished}");
    let place = format!(" in {}", call.display());
    assert!(calls.iter().all(|call| call.ends_with(&place)), "{calls:?}");
    let slot = started(&calls[0]).split(']').nth(1).expect("a slot");
    assert!(slot.starts_with("[cromwell-"), "{calls:?}");
    let stopped = format!("[session][stop][--slot]{slot}][--exit-status][9]");
    assert!(calls[1].starts_with(&stopped), "{calls:?}");
}

/// Returns a string in three quotes of a Groovy file.
fn groovy_string(text: &str, key: &str) -> String {
    let start = text.find(&format!("{key} = '''")).expect("the key") + key.len() + 6;
    let mut out = String::new();
    let mut rest = text[start..].chars();
    loop {
        match rest.next().expect("the string ends") {
            '\\' => out.extend(rest.next()),
            '\'' => return out,
            c => out.push(c),
        }
    }
}

/// Nextflow itself needs a download from its own site: its script is imitated.
#[test]
fn nextflow_calls_both_scripts_in_the_shell_of_the_task() {
    let fake = FakePegel::new();
    let config = install(&fake, "nextflow", &[]).join("pegel.config");
    let config = fs::read_to_string(config).expect("installed");
    let before = groovy_string(&config, "process.beforeScript");
    let after = groovy_string(&config, "process.afterScript");
    let work = fake.home.join("work/ab/cdef0123456789012345678901234567");
    fs::create_dir_all(&work).expect("created");
    let script = format!(
        "set -e\nset -u\nnxf_main() {{\nset +u\n{before}\nset -u\n\
         cd /tmp\nset +e\n(exit 4)\nnxf_main_ret=$?\nset -e\n{after}\n}}\nnxf_main\necho $$\n"
    );
    for workflow in [None, Some("my run")] {
        let mut command = fake.command("bash");
        command.args(["-c", &script]).current_dir(&work);
        if let Some(workflow) = workflow {
            command.env("PEGEL_WORKFLOW", workflow);
        }
        let finished = succeed(&mut command);
        let calls = fake.calls();
        let [.., start, stop] = &calls[..] else {
            panic!("{finished}");
        };
        let rest = started(start);
        let rest = match workflow {
            Some(_) => rest.strip_prefix("[--workflow][my run]").expect("named"),
            None => rest,
        };
        let slot = rest.split(']').nth(1).expect("a slot");
        let pid = format!("[--pid][{}] in {}", finished.stdout.trim(), work.display());
        assert!(rest.ends_with(&pid), "{start}");
        let stopped = format!("[session][stop][--slot]{slot}][--exit-status][4]");
        assert!(stop.starts_with(&stopped), "{stop}");
    }
}

#[test]
fn snakemake_records_every_job_of_a_real_workflow() {
    if need_peer("snakemake/bin/snakemake-hooks").is_none() {
        return;
    }
    let Some(snakemake) = need_peer("snakemake/bin/snakemake") else {
        return;
    };
    let fake = FakePegel::new();
    let smk = install(&fake, "snakemake", &[]).join("pegel.smk");
    let dir = fake.home.join("wf");
    fs::create_dir(&dir).expect("created");
    let snakefile = format!(
        "include: {smk:?}\n\
         rule all:\n    input: \"a.out\", \"b.out\"\n\
         rule align:\n    output: \"{{sample}}.out\"\n    shell: \"echo {{wildcards.sample}} > {{output}}\"\n\
         rule broken:\n    output: \"broken.txt\"\n    shell: \"false; echo never > {{output}}\"\n"
    );
    fs::write(dir.join("Snakefile"), snakefile).expect("written");
    let run = |target: &str| {
        let mut command = fake.command(&snakemake);
        command
            .args(["--cores", "1", "--quiet", "all", "--", target])
            .current_dir(&dir);
        ChildProcess::start(&mut command).wait(Duration::from_secs(120))
    };
    let finished = run("all");
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert_eq!(fs::read_to_string(dir.join("a.out")).expect("made"), "a\n");
    let calls = fake.calls();
    assert_eq!(calls.len(), 4, "{calls:?}\n{finished}");
    for sample in ["a", "b"] {
        let task = format!("[--task][align-sample={sample}]");
        let start = calls
            .iter()
            .find(|call| call.contains(&task))
            .expect("started");
        assert!(started(start).starts_with("[--workflow][wf-20"), "{start}");
    }
    let stopped = calls
        .iter()
        .filter(|call| call.contains("[--exit-status][0]"));
    assert_eq!(stopped.count(), 2, "{calls:?}");
    // Strict mode stays as it is, and the status of a failure is recorded.
    let finished = run("broken.txt");
    assert_ne!(finished.code(), Some(0), "{finished}");
    let calls = fake.calls();
    let last = calls.last().expect("a call");
    assert!(
        last.contains("[stop]") && last.contains("[--exit-status][1]"),
        "{calls:?}"
    );
}

/// Runs a script of Slurm as slurmd does: with its variables and nothing else.
fn slurm(fake: &FakePegel, script: &Path, variables: &[(&str, &str)]) {
    let mut command = fake.command(script);
    let finished = succeed(command.envs(variables.iter().copied()));
    // slurmd interprets the output of a TaskProlog.
    assert_eq!((&*finished.stdout, &*finished.stderr), ("", ""));
}

#[test]
fn slurm_starts_with_the_first_task_and_stops_with_the_job() {
    let fake = FakePegel::new();
    let dir = install(&fake, "slurm", &[]);
    let conf = fs::read_to_string(dir.join("slurm.conf.pegel")).expect("installed");
    let (prolog, epilog) = (
        dir.join("pegel-task-prolog.sh"),
        dir.join("pegel-epilog.sh"),
    );
    assert!(
        conf.contains(&format!("\nTaskProlog={}\n", prolog.display())),
        "{conf}"
    );
    assert!(
        conf.contains(&format!("\nEpilog={}\n", epilog.display())),
        "{conf}"
    );
    let job = ("SLURM_JOB_ID", "4711");
    let task = ("SLURM_TASK_PID", "99");
    slurm(&fake, &prolog, &[job, task, ("SLURM_LOCALID", "0")]);
    slurm(&fake, &prolog, &[job, task, ("SLURM_LOCALID", "1")]);
    slurm(&fake, &prolog, &[]);
    let calls = fake.calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert!(
        started(&calls[0]).starts_with("[--slot][slurm-4711][--pid][99]"),
        "{calls:?}"
    );
    for (code, expected) in [
        ("", "[--slot][slurm-4711] in"),
        ("256", "[--slot][slurm-4711][--exit-status][1] in"),
        ("9", "[--slot][slurm-4711][--exit-status][137] in"),
    ] {
        slurm(&fake, &epilog, &[job, ("SLURM_JOB_EXIT_CODE", code)]);
        let calls = fake.calls();
        let last = calls.last().expect("a call");
        assert!(
            last.starts_with(&format!("[session][stop]{expected}")),
            "{last}"
        );
    }
}

#[test]
fn slurm_stops_as_the_user_of_the_job() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let fake = FakePegel::new();
    let dir = install(&fake, "slurm", &[]);
    let log = fake.home.join("calls");
    fs::write(&log, "").expect("written");
    set_mode(&log, 0o666);
    for path in [fake.home.path(), &dir, &fake.home.join("bin")] {
        set_mode(path, 0o755);
    }
    let script = "#!/bin/sh\necho \"$(id -u):$(id -g) $XDG_RUNTIME_DIR\" >>\"$FAKE_PEGEL_LOG\"\n";
    fs::write(fake.path(), script).expect("written");
    slurm(
        &fake,
        &dir.join("pegel-epilog.sh"),
        &[
            ("SLURM_JOB_ID", "4711"),
            ("SLURM_JOB_UID", "65534"),
            ("SLURM_JOB_GID", "65533"),
        ],
    );
    assert_eq!(fake.calls(), ["65534:65533 /run/user/65534"]);
}

#[test]
fn tes_downloads_the_bundle_and_runs_its_start_script() {
    let Some(_) = need("curl") else {
        return;
    };
    let fake = FakePegel::new();
    let lines = install(&fake, "tes", &[]).join("pegel-tes.sh");
    let (bundle, task) = (fake.home.join("made/pegel-bundle"), fake.home.join("task"));
    fs::create_dir_all(&bundle).expect("created");
    fs::create_dir_all(&task).expect("created");
    fs::copy(fake.path(), bundle.join("start.sh")).expect("copied");
    let mut tar = Command::new("tar");
    tar.args(["-czf", "b.tar.gz", "-C", "made", "pegel-bundle"]);
    succeed(tar.current_dir(fake.home.path()));
    let installed = fake
        .home
        .join(format!("pegel-{}", rustix::process::getuid().as_raw()));
    fs::create_dir(&installed).expect("created");
    fs::copy(fake.path(), installed.join("pegel")).expect("copied");
    let script = format!(
        ". '{}'\nsh -c 'exit 6'\npegel_task_end \"$?\"\n",
        lines.display()
    );
    for is_found in [true, false] {
        let name = if is_found {
            "b.tar.gz"
        } else {
            "missing.tar.gz"
        };
        let url = format!("file://{}", fake.home.join(name).display());
        let mut command = fake.command("sh");
        command
            .args(["-e", "-c", &script.replace("sh -c 'exit 6'", "true")])
            .env("PEGEL_BUNDLE_URL", url)
            .env("AZ_BATCH_NODE_SHARED_DIR", fake.home.path())
            .env("AZ_BATCH_TASK_DIR", &task)
            .current_dir(&task);
        let finished = succeed(&mut command);
        assert_eq!((&*finished.stdout, &*finished.stderr), ("", ""));
    }
    let calls = fake.calls();
    assert_eq!(calls.len(), 3, "{calls:?}");
    let start = format!("[--to][{PLACE}][--pid][");
    assert!(calls[0].starts_with(&start), "{calls:?}");
    assert!(
        calls[1].starts_with("[session][stop][--exit-status][0]"),
        "{calls:?}"
    );
}

/// A program in the place of `flux`, after the documentation and sources of flux-core: attributes
/// of a broker, ids of jobs, and memos, which are refused for unknown jobs.
const FAKE_FLUX: &str = r#"#!/bin/sh
case "$1 $2" in
    "getattr rundir") echo "$FAKE_RUNDIR" ;;
    "getattr broker.pid") echo "$FAKE_BROKER" ;;
    "getattr rank") echo 0 ;;
    "job id") echo "$4" | sed 's/^ƒ/f/' ;;
    "job memo")
        shift 2
        [ "$1" = ƒA4V ] || { echo "flux-job: memo: unknown job id" >&2; exit 1; }
        shift
        for word in "$@"; do printf '%s\n' "$word" >>"$FAKE_RUNDIR/memo"; done
        ;;
    *) echo "flux: $*: not known to the test" >&2; exit 1 ;;
esac
"#;

/// Installs the scripts for Flux, and the program in the place of `flux`.
struct FakeFlux {
    fake: FakePegel,
    dir: PathBuf,
    broker: ChildProcess,
}

impl FakeFlux {
    fn new(pegel: &str) -> FakeFlux {
        let fake = FakePegel::new();
        let dir = fake.home.join("flux hooks");
        let args = ["hook", "flux", "--pegel", pegel, "--install"];
        succeed(PEGEL.command(&fake.home).args(args).arg(&dir));
        fs::write(fake.home.join("bin/flux"), FAKE_FLUX).expect("written");
        set_mode(fake.home.join("bin/flux"), 0o755);
        fs::create_dir(fake.home.join("run")).expect("made");
        let broker = ChildProcess::start(Command::new("sleep").arg("1000"));
        FakeFlux { fake, dir, broker }
    }

    /// Returns a command with the variables that a broker sets.
    fn command(&self, script: &str) -> Command {
        let mut command = self.fake.command(self.dir.join(script));
        command
            .env("FAKE_RUNDIR", self.run())
            .env("FAKE_BROKER", self.broker.pid().to_string())
            .env("FLUX_FRIPP_STATSD", "127.0.0.1:0")
            .env("PEGEL_HOOK_LOG", self.fake.home.join("log"));
        command
    }

    fn run(&self) -> PathBuf {
        self.fake.home.join("run")
    }

    /// Returns the process of the agent, if it runs.
    fn agent(&self) -> Option<u64> {
        let text = fs::read(self.run().join("pegel/endpoint.json")).ok()?;
        let endpoint: serde_json::Value = serde_json::from_slice(&text).ok()?;
        endpoint["pid"].as_u64()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.fake.home.join("log")).unwrap_or_default()
    }
}

#[test]
fn every_script_for_flux_is_valid_shell() {
    let flux = FakeFlux::new("/opt/two words/pegel");
    let shellcheck = need("shellcheck");
    for script in [
        "env.sh",
        "rc1.d/50-pegel",
        "rc3.d/50-pegel",
        "pegel-epilog.sh",
    ] {
        let script = flux.dir.join(script);
        succeed(Command::new("sh").arg("-n").arg(&script));
        if let Some(shellcheck) = &shellcheck {
            succeed(Command::new(shellcheck).args(["-s", "sh"]).arg(&script));
        }
    }
    let args = ["hook", "flux", "--to", "file:///data"];
    let refused = finish(PEGEL.command(&flux.fake.home).args(args));
    assert_eq!(refused.code(), Some(2), "{refused}");
}

#[test]
fn flux_starts_an_agent_with_its_broker_and_adds_a_memo_to_jobs() {
    let flux = FakeFlux::new(PEGEL.path());
    let environment = fs::read_to_string(flux.dir.join("env.sh")).expect("read");
    let shown = format!("{environment}\necho \"$FLUX_RC_EXTRA $FLUX_FRIPP_STATSD\"");
    let shown = succeed(flux.fake.command("sh").args(["-c", &shown])).stdout;
    assert_eq!(shown, format!("{} 127.0.0.1:8125\n", flux.dir.display()));
    succeed(&mut flux.command("rc1.d/50-pegel"));
    assert!(flux.agent().is_some(), "{}", flux.log());
    let socket = flux.run().join("pegel.sock");
    let mut run = PEGEL.command(&flux.fake.home);
    run.arg("run").arg("-u").arg(&socket);
    succeed(run.args(["-j", "fA4V", "-q", "--", "true"]));

    // For an unknown job there is nothing to add; neither fails the job.
    for (job, is_known) in [("ƒA4V", true), ("ƒ9999", false)] {
        succeed(flux.command("pegel-epilog.sh").env("FLUX_JOB_ID", job));
        let memo = fs::read_to_string(flux.run().join("memo")).unwrap_or_default();
        assert_eq!(
            memo.contains("pegel.0.cpu_seconds="),
            is_known,
            "{memo} {}",
            flux.log()
        );
        if is_known {
            assert!(memo.contains("pegel.0.memory_peak="), "{memo}");
            assert!(memo.contains("pegel.0.state=exit 0\n"), "{memo}");
            fs::remove_file(flux.run().join("memo")).expect("removed");
        }
    }
    succeed(&mut flux.command("rc3.d/50-pegel"));
    assert_eq!(flux.agent(), None, "the agent has ended");
}

#[test]
fn the_agent_of_a_broker_ends_however_the_broker_ends() {
    let flux = FakeFlux::new(PEGEL.path());
    succeed(&mut flux.command("rc1.d/50-pegel"));
    assert!(flux.agent().is_some(), "{}", flux.log());
    flux.broker.signal(Signal::KILL);
    eventually("the agent has ended", || match flux.agent() {
        None => Ok(()),
        Some(pid) => Err(pid),
    });
    // A broken pegel does not keep an instance from starting.
    let flux = FakeFlux::new("/nonexistent/pegel");
    for script in ["rc1.d/50-pegel", "rc3.d/50-pegel", "pegel-epilog.sh"] {
        succeed(flux.command(script).env("FLUX_JOB_ID", "ƒA4V"));
    }
}
