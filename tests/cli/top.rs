//! `pegel top` in a real terminal: tmux draws and reports the screen.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pegel_testkit::{AgentProcess, ChildProcess, TempDir, eventually, isolate, need};
use rustix::process::{Pid, Signal};

use crate::PEGEL;

const BOUND: Duration = Duration::from_secs(30);
const USUAL: [(&str, &str); 2] = [("TERM", "tmux-256color"), ("LANG", "C.UTF-8")];

/// A private tmux server with one window, killed on drop.
struct TmuxTerminal {
    tmux: PathBuf,
    home: TempDir,
    name: String,
}

impl TmuxTerminal {
    /// Opens a shell in a terminal of this size; `None` without tmux.
    #[track_caller]
    fn open(columns: u16, rows: u16, variables: &[(&str, &str)]) -> Option<TmuxTerminal> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let terminal = TmuxTerminal {
            tmux: need("tmux")?,
            home: TempDir::new(),
            name: format!("pegel-top-{}-{count}", std::process::id()),
        };
        let mut shell = "exec env".to_owned();
        for (key, value) in variables {
            shell.push_str(&format!(" {key}={value}"));
        }
        shell.push_str(" PS1='ready: ' sh");
        let size = [columns.to_string(), rows.to_string()];
        terminal.tmux(&["new-session", "-d", "-x", &size[0], "-y", &size[1], &shell]);
        // Otherwise the last line of a program's output is lost with its window.
        terminal.tmux(&["set-option", "-g", "remain-on-exit", "on"]);
        terminal.wait_for("ready:");
        Some(terminal)
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.tmux);
        isolate(&mut command, &self.home);
        command
            .env("TMUX_TMPDIR", self.home.path())
            .env("LANG", "C.UTF-8")
            .args(["-L", &self.name, "-f", "/dev/null"])
            .args(arguments);
        let finished = ChildProcess::start(&mut command).wait(BOUND);
        assert_eq!(finished.code(), Some(0), "tmux {arguments:?}: {finished}");
        finished.stdout
    }

    fn press(&self, keys: &[&str]) {
        let mut arguments = vec!["send-keys"];
        arguments.extend(keys);
        self.tmux(&arguments);
    }

    /// Types a line into the shell.
    fn run(&self, line: &str) {
        self.press(&[line, "Enter"]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen contains the text, and returns the screen.
    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        eventually(&format!("{text:?} on the screen"), || {
            let screen = self.screen();
            if screen.contains(text) {
                Ok(screen)
            } else {
                Err(screen)
            }
        })
    }

    #[track_caller]
    fn wait_for_not(&self, text: &str) {
        eventually(&format!("{text:?} no more on the screen"), || {
            let screen = self.screen();
            if screen.contains(text) {
                Err(screen)
            } else {
                Ok(())
            }
        });
    }

    /// Returns a tmux variable of the terminal.
    fn state(&self, format: &str) -> String {
        let shown = self.tmux(&["display-message", "-p", format]);
        shown.trim_end().to_owned()
    }

    /// Asserts that screen, cursor and terminal mode are restored.
    #[track_caller]
    fn assert_restored(&self, mark: &str) {
        // A terminal in cooked mode echoes, and translates the line end.
        self.run(&format!("stty -a | grep -c ' icanon' ; echo {mark}=$?"));
        let screen = self.wait_for(&format!("{mark}=0"));
        assert!(!screen.contains("[1:node]"), "{screen}");
        assert_eq!(
            self.state("#{alternate_on} #{cursor_flag}"),
            "0 1",
            "{screen}"
        );
    }
}

impl Drop for TmuxTerminal {
    fn drop(&mut self) {
        // Kills this server only, by its own socket name.
        let _ = Command::new(&self.tmux)
            .env("TMUX_TMPDIR", self.home.path())
            .args(["-L", &self.name, "kill-server"])
            .output();
    }
}

fn agent() -> AgentProcess {
    PEGEL.agent().start()
}

/// Returns the command line; afterwards the exit code is on the screen.
fn top(agent: &AgentProcess, options: &str) -> String {
    format!(
        "{PEGEL} top -u {} {options}; echo code=$?",
        agent.socket.display()
    )
}

#[test]
fn every_view_has_a_key() {
    let Some(terminal) = TmuxTerminal::open(80, 24, &USUAL) else {
        return;
    };
    let agent = agent();
    terminal.run(&top(&agent, ""));
    let node = terminal.wait_for("█ user");
    assert!(
        node.contains("[1:node]") && node.contains("memory"),
        "{node}"
    );
    assert!(node.contains("load") && node.contains("network"), "{node}");
    assert_eq!(terminal.state("#{alternate_on} #{cursor_flag}"), "1 0");
    for (key, chosen, content) in [
        ("2", "[2:processes]", "processes"),
        ("3", "[3:GPUs]", "GPU"),
        ("4", "[4:disks]", "disk"),
        ("5", "[5:network]", "interface"),
        ("6", "[6:pressure]", "share of time"),
        ("7", "[7:programs]", "programs"),
        ("8", "[8:metrics]", "load_average"),
        ("Tab", "[1:node]", "memory"),
        ("BTab", "[8:metrics]", "load_average"),
        ("?", "this help", "sort by the next"),
        ("Escape", "[8:metrics]", "series, by name"),
    ] {
        terminal.press(&[key]);
        terminal.wait_for(chosen);
        // The help shows the tabs of the view below it.
        let screen = terminal.wait_for(content);
        assert!(screen.contains(chosen), "{key}: {screen}");
        assert!(screen.contains("q quit"), "{key}: {screen}");
    }
    terminal.press(&["q"]);
    terminal.wait_for("code=0");
    terminal.assert_restored("after");
}

#[test]
fn a_node_is_shown_through_the_tree() {
    let Some(terminal) = TmuxTerminal::open(120, 40, &USUAL) else {
        return;
    };
    // An address of this test's own: the leaf needs it before the head runs.
    let id = std::process::id();
    let address = format!("127.{}.{}.7:1338", 1 + id / 256 % 250, id % 256);
    let head = PEGEL
        .agent()
        .args(&["--node", "top-head", "--accept", &address])
        .start();
    let leaf = PEGEL
        .agent()
        .args(&["--node", "top-leaf", "--parent", &address])
        .start();
    eventually("the leaf is up", || {
        let nodes = head.get("/api/v1/nodes").json();
        let all = nodes["nodes"].as_array().expect("a list").iter();
        let is_up = |node: &serde_json::Value| node["node"] == "top-leaf" && node["state"] == "up";
        all.clone().any(is_up).then_some(()).ok_or(nodes)
    });
    terminal.run(&top(&head, "--node top-leaf"));
    terminal.wait_for("█ user");
    terminal.wait_for("top-leaf below top-head");
    terminal.press(&["q"]);
    terminal.wait_for("code=0");
    // The head lists both, and enter shows the chosen one.
    terminal.run("clear");
    terminal.run(&top(&head, ""));
    terminal.wait_for("█ user");
    terminal.press(&["9"]);
    terminal.wait_for("top-leaf");
    // By name: the order is that of a busy machine.
    terminal.press(&["/", "leaf", "Enter"]);
    terminal.wait_for("with \"leaf\"");
    terminal.press(&["Enter"]);
    terminal.wait_for("top-leaf below top-head");
    terminal.wait_for("█ user");
    terminal.press(&["q"]);
    terminal.wait_for("code=0");
    // A node that does not exist is an error, before the screen changes.
    terminal.run("clear");
    terminal.run(&top(&head, "--node top-laef"));
    let screen = terminal.wait_for("code=4");
    assert!(screen.contains("no node named top-laef"), "{screen}");
    drop(leaf);
}

#[test]
fn the_overview_uses_the_whole_screen() {
    let agent = agent();
    for (columns, rows) in [(80u16, 24u16), (120, 40), (200, 60)] {
        let Some(terminal) = TmuxTerminal::open(columns, rows, &USUAL) else {
            return;
        };
        terminal.run(&top(&agent, ""));
        terminal.wait_for("█ user");
        let screen = eventually("all parts of the overview", || {
            let screen = terminal.screen();
            let mut parts = vec!["[1:node]2:processes", "used", "shared", "cache", "cpu▾"];
            if columns >= 120 {
                parts.extend(["max", "┴ 1 min", " now", "free"]);
            }
            match parts.into_iter().find(|part| !screen.contains(part)) {
                None => Ok(screen),
                Some(part) => Err(format!("no {part:?} in\n{screen}")),
            }
        });
        // The charts reach down to their time axis, above the line of keys. How much of them is
        // filled depends on the values.
        let rows = usize::from(rows);
        let lines: Vec<&str> = screen.lines().collect();
        assert!(
            lines.len() == rows && lines[rows - 1].contains("q quit"),
            "{screen}"
        );
        assert!(
            columns < 120 || lines[rows - 4..].iter().any(|line| line.contains(" now")),
            "{screen}"
        );
        let widest = screen.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(columns.into()), "{screen}");
        terminal.press(&["q"]);
        terminal.wait_for("code=0");
    }
}

#[test]
fn processes_are_sorted_and_grouped() {
    let Some(terminal) = TmuxTerminal::open(120, 40, &USUAL) else {
        return;
    };
    let agent = agent();
    terminal.run(&top(&agent, ""));
    terminal.wait_for("█ user");
    terminal.press(&["2"]);
    let screen = terminal.wait_for("processes, by CPU");
    assert!(screen.contains("cpu▾"), "{screen}");
    // The agent runs as this user, so that its command line is visible.
    terminal.press(&["/"]);
    terminal.press(&["pegel agent"]);
    terminal.press(&["Enter"]);
    terminal.wait_for("with \"pegel agent\"");
    terminal.wait_for("pegel agent --");
    terminal.press(&["Enter"]);
    terminal.wait_for(" cgroup  /");
    terminal.wait_for(" command ");
    terminal.press(&["Escape"]);
    terminal.wait_for_not(" command ");
    terminal.press(&["Escape"]);
    terminal.wait_for_not("with \"");
    terminal.press(&["s"]);
    terminal.wait_for("memory▾");
    terminal.press(&["b"]);
    terminal.wait_for("b by: user");
    terminal.wait_for("root");
    terminal.press(&["b"]);
    terminal.wait_for("b by: cgroup");
    terminal.press(&["q"]);
    terminal.wait_for("code=0");
}

#[test]
fn series_are_filtered_sorted_and_shown_in_detail() {
    let Some(terminal) = TmuxTerminal::open(120, 40, &USUAL) else {
        return;
    };
    let agent = agent();
    terminal.run(&top(&agent, "-F 5"));
    terminal.wait_for("█ user");
    terminal.press(&["/"]);
    terminal.wait_for("filter:");
    terminal.press(&["load1"]);
    terminal.press(&["Enter"]);
    let screen = terminal.wait_for("with \"load1\"");
    assert!(screen.contains("> node_load1"), "{screen}");
    terminal.press(&["Down", "Enter"]);
    let screen = terminal.wait_for("type");
    assert!(screen.contains("gauge"), "{screen}");
    // One by one: two escapes at once are another key.
    terminal.press(&["Escape"]);
    terminal.wait_for_not("type");
    terminal.press(&["Escape"]);
    terminal.wait_for_not("load1");
    terminal.press(&["s", "s"]);
    let screen = terminal.wait_for("by rate");
    assert!(screen.contains("/s"), "{screen}");
    // The displayed time stops while paused, and then continues.
    terminal.press(&["Space"]);
    let paused = terminal.wait_for("PAUSED");
    let time = |screen: &str| {
        screen
            .lines()
            .next()
            .map(|line| line[line.len() - 12..].to_owned())
    };
    terminal.press(&["1"]);
    let later = terminal.wait_for("[1:node]");
    assert_eq!(time(&later), time(&paused));
    terminal.press(&["Space"]);
    eventually("the time goes on", || {
        let now = terminal.screen();
        if !now.contains("PAUSED") && time(&now) != time(&paused) {
            Ok(())
        } else {
            Err(now)
        }
    });
    terminal.press(&["C-c"]);
    terminal.wait_for("code=0");
    terminal.assert_restored("after");
}

#[test]
fn top_survives_a_restart_of_the_agent() {
    let Some(terminal) = TmuxTerminal::open(80, 24, &USUAL) else {
        return;
    };
    let home = TempDir::new();
    let start = || {
        let builder = PEGEL.agent().dir(home.join("store"));
        builder.socket(home.join("push.sock")).start()
    };
    let agent = start();
    terminal.run(&top(&agent, ""));
    terminal.wait_for("█ user");
    agent.kill();
    let gone = terminal.wait_for("disconnected since");
    assert!(
        gone.contains("retrying") && gone.contains("memory"),
        "{gone}"
    );
    let agent = start();
    terminal.wait_for_not("disconnected");
    eventually("values go on", || {
        let screen = terminal.screen();
        if screen.contains("user") && screen.contains("2 Hz") {
            Ok(())
        } else {
            Err(screen)
        }
    });
    agent.stop();
    terminal.wait_for("disconnected since");
    terminal.press(&["q"]);
    terminal.wait_for("code=0");
    terminal.assert_restored("after");
}

/// Returns the process in the terminal's foreground.
fn foreground(terminal: &TmuxTerminal) -> Pid {
    let shell = terminal.state("#{pane_pid}");
    eventually("a child of the shell", || {
        let path = format!("/proc/{shell}/task/{shell}/children");
        let children = std::fs::read_to_string(&path).map_err(|e| e.to_string())?;
        let first = children.split(' ').next().and_then(|pid| pid.parse().ok());
        first.and_then(Pid::from_raw).ok_or(children)
    })
}

#[test]
fn the_terminal_is_restored_on_every_exit() {
    let Some(terminal) = TmuxTerminal::open(80, 24, &USUAL) else {
        return;
    };
    let agent = agent();
    for (index, signal) in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT]
        .into_iter()
        .enumerate()
    {
        terminal.run("clear");
        terminal.run(&top(&agent, ""));
        terminal.wait_for("[1:node]");
        let pid = foreground(&terminal);
        rustix::process::kill_process(pid, signal).expect("it runs");
        terminal.wait_for("code=0");
        terminal.assert_restored(&format!("after{index}"));
    }
}

#[test]
fn top_exits_with_its_terminal() {
    let Some(terminal) = TmuxTerminal::open(80, 24, &USUAL) else {
        return;
    };
    let agent = agent();
    // Also if SIGHUP is ignored by the parent, as under nohup.
    for ignored in ["", "trap '' HUP; "] {
        terminal.run("clear");
        let line = format!("{ignored}{PEGEL} top -u {}", agent.socket.display());
        terminal.tmux(&["new-window", &line]);
        terminal.wait_for("[1:node]");
        let pid = eventually("the program runs", || {
            let pid = terminal.state("#{pane_pid}");
            let shell = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let child = shell.unwrap_or_default().trim().parse().unwrap_or(0);
            let own = pid.parse().unwrap_or(0);
            Pid::from_raw(if child > 0 { child } else { own }).ok_or(pid)
        });
        terminal.tmux(&["kill-window"]);
        eventually("it is gone", || {
            match rustix::process::test_kill_process(pid) {
                Ok(()) => Err(format!("{pid:?} still runs")),
                Err(_) => Ok(()),
            }
        });
    }
}

#[test]
fn top_can_be_suspended_and_resized() {
    let Some(terminal) = TmuxTerminal::open(80, 24, &USUAL) else {
        return;
    };
    let agent = agent();
    // Only a shell with job control can continue it.
    terminal.run("set -m");
    terminal.run(&format!("{PEGEL} top -u {}", agent.socket.display()));
    terminal.wait_for("[1:node]");
    terminal.press(&["C-z"]);
    eventually("back in the shell", || {
        match terminal.state("#{alternate_on}").as_str() {
            "0" => Ok(()),
            state => Err(state.to_owned()),
        }
    });
    terminal.assert_restored("stopped");
    terminal.run("fg");
    terminal.wait_for("[1:node]");
    assert_eq!(terminal.state("#{alternate_on} #{cursor_flag}"), "1 0");
    terminal.tmux(&["resize-window", "-x", "60", "-y", "15"]);
    let screen = eventually("the new size is used", || {
        let screen = terminal.screen();
        let is_there = screen
            .lines()
            .nth(14)
            .is_some_and(|line| line.contains("q quit"));
        if is_there { Ok(screen) } else { Err(screen) }
    });
    assert!(
        screen.lines().all(|line| line.chars().count() <= 60),
        "{screen}"
    );
    terminal.tmux(&["resize-window", "-x", "30", "-y", "8"]);
    terminal.wait_for("Too small: 30x8");
    terminal.tmux(&["resize-window", "-x", "80", "-y", "24"]);
    terminal.wait_for("memory");
    terminal.press(&["q"]);
    eventually("it ended", || {
        match terminal.state("#{alternate_on}").as_str() {
            "0" => Ok(()),
            state => Err(state.to_owned()),
        }
    });
    terminal.assert_restored("after");
}

#[test]
fn colours_and_blocks_are_used_only_if_supported() {
    let variables = [("TERM", "vt100"), ("LANG", "C"), ("LC_ALL", "C")];
    let Some(terminal) = TmuxTerminal::open(80, 24, &variables) else {
        return;
    };
    let agent = agent();
    terminal.run(&top(&agent, ""));
    terminal.wait_for(" system");
    let screen = terminal.tmux(&["capture-pane", "-p", "-e"]);
    assert!(screen.is_ascii(), "{screen}");
    for sequence in screen.split("\u{1b}[").skip(1) {
        let codes = sequence.split('m').next().unwrap_or_default();
        // 39 and 49 select the terminal's default colours.
        let is_coloured = |code: &str| {
            let code: u32 = code.parse().unwrap_or(0);
            matches!(code, 30..=38 | 40..=48 | 90..=107)
        };
        assert!(!codes.split(';').any(is_coloured), "{codes}: {screen:?}");
    }
    terminal.press(&["q"]);
    terminal.wait_for("code=0");
}

#[test]
fn a_missing_agent_or_terminal_is_reported_at_once() {
    let home = TempDir::new();
    let socket = home.join("nobody.sock");
    let socket = socket.to_str().expect("a plain path");
    let finished =
        ChildProcess::start(PEGEL.command(&home).args(["top", "-u", socket])).wait(BOUND);
    assert_eq!(finished.code(), Some(2), "{finished}");
    assert!(finished.stderr.contains("not a terminal"), "{finished}");
    assert!(finished.stderr.contains("pegel values"), "{finished}");
    let Some(terminal) = TmuxTerminal::open(80, 24, &[("TERM", "tmux-256color")]) else {
        return;
    };
    terminal.run(&format!("{PEGEL} top -u {socket}; echo code=$?"));
    let screen = terminal.wait_for("code=3");
    assert!(screen.contains("no agent is listening on"), "{screen}");
    let agent = agent();
    terminal.run("clear");
    terminal.run(&top(&agent, "--node elsewhere"));
    let screen = terminal.wait_for("code=4");
    assert!(screen.contains("elsewhere"), "{screen}");
    terminal.run("clear");
    terminal.run(&top(&agent, "--match 'node_load*'"));
    let screen = terminal.wait_for("node_load15");
    assert!(
        screen.contains("3 series, by name, --match node_load*"),
        "{screen}"
    );
    terminal.press(&["q"]);
    terminal.wait_for("code=0");
}
