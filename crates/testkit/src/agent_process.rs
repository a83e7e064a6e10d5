//! Runs the built agent as a child process, isolated from the machine and from other tests.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::http::{self, AgentAddress, TestResponse};
use crate::{
    ChildProcess, FinishedProcess, PLANTED_TOKEN, StoredSamples, TempDir, check_conserved,
    eventually, isolate,
};

/// The maximum time for an agent to start or stop on a loaded machine.
const BOUND: Duration = Duration::from_secs(30);

/// Configures an agent. Defaults: free loopback ports, its own directory and socket, and the
/// environment of [`isolate`].
#[derive(Debug)]
pub struct AgentBuilder {
    binary: PathBuf,
    home: TempDir,
    dir: PathBuf,
    socket: PathBuf,
    listen: Vec<String>,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
}

/// A running agent; killed when the value goes out of scope.
#[derive(Debug)]
pub struct AgentProcess {
    process: ChildProcess,
    binary: PathBuf,
    home: TempDir,
    pub dir: PathBuf,
    pub socket: PathBuf,
    pub endpoint: AgentEndpoint,
}

/// The contents of `endpoint.json`.
#[derive(Debug, Clone)]
pub struct AgentEndpoint {
    pub http: Vec<AgentAddress>,
    pub json: serde_json::Value,
}

impl AgentBuilder {
    pub fn new(binary: impl AsRef<Path>) -> AgentBuilder {
        let home = TempDir::new();
        AgentBuilder {
            binary: binary.as_ref().to_owned(),
            dir: home.join("store"),
            socket: home.join("push.sock"),
            home,
            listen: vec!["127.0.0.1:0".to_owned()],
            args: Vec::new(),
            envs: Vec::new(),
        }
    }

    pub fn dir(mut self, dir: impl AsRef<Path>) -> AgentBuilder {
        self.dir = dir.as_ref().to_owned();
        self
    }

    pub fn socket(mut self, socket: impl AsRef<Path>) -> AgentBuilder {
        self.socket = socket.as_ref().to_owned();
        self
    }

    /// Replaces the list of listeners.
    pub fn listen(mut self, addresses: &[&str]) -> AgentBuilder {
        self.listen = addresses
            .iter()
            .map(|&address| address.to_owned())
            .collect();
        self
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> AgentBuilder {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub fn args(self, args: &[&str]) -> AgentBuilder {
        args.iter().fold(self, |builder, arg| builder.arg(arg))
    }

    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> AgentBuilder {
        self.envs.push((key.into(), value.as_ref().to_owned()));
        self
    }

    /// Writes a configuration file and points the agent at it.
    pub fn config(self, yaml: &str) -> AgentBuilder {
        let path = self.home.join("pegel.yaml");
        fs::write(&path, yaml).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self.arg("--config").arg(&path)
    }

    /// Returns the agent's default lane directory, and creates it if necessary.
    pub fn lanes(&self) -> PathBuf {
        let path = self.home.join("lanes");
        // It exists already on a second call.
        let _ = fs::create_dir(&path);
        path
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        isolate(&mut command, &self.home);
        command
            .arg("agent")
            .arg("--dir")
            .arg(&self.dir)
            .arg("--socket")
            .arg(&self.socket);
        for address in &self.listen {
            command.arg("--listen").arg(address);
        }
        // The default ports would collide between tests that run at the same time.
        if !self.args.iter().any(|arg| arg == "--statsd") {
            command.args(["--statsd", "udp:127.0.0.1:0", "--statsd", "tcp:127.0.0.1:0"]);
        }
        // Must not appear in any output, see `assert_token_absent`.
        command.env("PEGEL_TOKEN", PLANTED_TOKEN);
        command
            .args(&self.args)
            .envs(self.envs.iter().map(|(key, value)| (key, value)));
        command
    }

    /// Starts the agent and waits for its `endpoint.json`. A failure shows its output.
    #[track_caller]
    pub fn start(self) -> AgentProcess {
        self.try_start()
            .unwrap_or_else(|finished| panic!("the agent ended: {finished}"))
    }

    /// Like [`AgentBuilder::start`]; returns the finished process if the agent exits before it is
    /// ready.
    pub fn try_start(self) -> Result<AgentProcess, FinishedProcess> {
        let started = Instant::now();
        let mut process = ChildProcess::start(&mut self.command());
        let path = self.dir.join("endpoint.json");
        let endpoint = loop {
            if let Some(endpoint) = AgentEndpoint::read(&path, process.pid()) {
                break endpoint;
            }
            if process.has_ended() {
                return Err(process.wait(BOUND));
            }
            assert!(
                started.elapsed() < BOUND,
                "no {} in {BOUND:?}",
                path.display()
            );
            std::thread::sleep(Duration::from_millis(1));
        };
        let AgentBuilder {
            binary,
            home,
            dir,
            socket,
            ..
        } = self;
        Ok(AgentProcess {
            process,
            binary,
            home,
            dir,
            socket,
            endpoint,
        })
    }

    /// Starts an agent that cannot write its `endpoint.json`: waits until its UNIX socket responds,
    /// and uses that socket for all requests.
    #[track_caller]
    pub fn start_without_endpoint(self) -> AgentProcess {
        let started = Instant::now();
        let mut process = ChildProcess::start(&mut self.command());
        let address = AgentAddress::Unix(self.socket.clone());
        while http::get(&address, "/healthz").is_err() {
            assert!(!process.has_ended(), "the agent ended");
            assert!(
                started.elapsed() < BOUND,
                "no answer on {address} in {BOUND:?}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        let endpoint = AgentEndpoint {
            http: vec![address],
            json: serde_json::Value::Null,
        };
        let AgentBuilder {
            binary,
            home,
            dir,
            socket,
            ..
        } = self;
        AgentProcess {
            process,
            binary,
            home,
            dir,
            socket,
            endpoint,
        }
    }

    /// Runs the agent until it exits: with `--once`, or if it must refuse to start.
    #[track_caller]
    pub fn run(self) -> FinishedProcess {
        ChildProcess::start(&mut self.command()).wait(BOUND)
    }
}

impl AgentEndpoint {
    /// Returns None until the agent with this process ID has written the file. The file is renamed
    /// into place and thus always complete; the process ID tells it apart from one left by a
    /// previous agent.
    fn read(path: &Path, pid: u32) -> Option<AgentEndpoint> {
        let text = fs::read(path).ok()?;
        let json: serde_json::Value = serde_json::from_slice(&text)
            .unwrap_or_else(|e| panic!("{} is not JSON: {e}", path.display()));
        if json["pid"].as_u64() != Some(u64::from(pid)) {
            return None;
        }
        let http = json["http"].as_array().expect("a list of addresses");
        let http = http.iter().map(|address| {
            let address = address.as_str().expect("an address is a text");
            AgentAddress::Tcp(address.parse().unwrap_or_else(|e| panic!("{address}: {e}")))
        });
        Some(AgentEndpoint {
            http: http.collect(),
            json: json.clone(),
        })
    }
}

impl AgentProcess {
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the address of the first HTTP listener.
    pub fn http(&self) -> &AgentAddress {
        &self.endpoint.http[0]
    }

    pub fn unix(&self) -> AgentAddress {
        AgentAddress::Unix(self.socket.clone())
    }

    /// Sends a GET request, which must be answered with 200.
    #[track_caller]
    pub fn get(&self, path: &str) -> TestResponse {
        let answer = http::get(self.http(), path).unwrap_or_else(|e| panic!("GET {path}: {e}"));
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.text());
        answer
    }

    #[track_caller]
    pub fn status(&self) -> serde_json::Value {
        self.get("/status").json()
    }

    /// Returns the number of clients refused for this reason.
    #[track_caller]
    pub fn refused(&self, reason: &str) -> u64 {
        let status = self.status();
        let count = &status["http"]["refused"][reason];
        count
            .as_u64()
            .unwrap_or_else(|| panic!("{reason} in {status}"))
    }

    /// Asserts received = kept + dropped for every input. Retries while a tick is on its way to the
    /// store.
    #[track_caller]
    pub fn assert_conserved(&self) {
        eventually("received = kept + dropped", || {
            check_conserved(&self.status())
        });
    }

    /// Returns every stored sample of the last hour of the matching series.
    #[track_caller]
    pub fn samples(&self, matching: &str) -> StoredSamples {
        StoredSamples::read(self, matching)
    }

    /// Runs a client command that talks to this agent.
    pub fn client(&self, args: &[&str]) -> FinishedProcess {
        let mut command = Command::new(&self.binary);
        self.connect(&mut command);
        command.args(args);
        ChildProcess::start(&mut command).wait(BOUND)
    }

    /// Sets the environment of a command so that it, and `pegel` inside it, use this agent.
    pub fn connect(&self, command: &mut Command) {
        isolate(command, &self.home);
        command.env("PEGEL_SOCKET", &self.socket);
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Sends SIGSTOP and waits until every thread has stopped: the signal arrives after `kill`
    /// returns. SIGCONT continues the agent.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid());
        eventually("every thread is stopped", || {
            let running = fs::read_dir(&tasks)
                .expect("the agent's threads")
                .filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok())
                .find(|stat| !stat.contains(") T "));
            running.map_or(Ok(()), Err)
        });
    }

    pub fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Returns all output of the agent, for a message.
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// Waits until the agent exits by itself.
    pub fn wait(self) -> FinishedProcess {
        self.process.wait(BOUND)
    }

    /// Sends SIGTERM and waits for the exit.
    pub fn stop(self) -> FinishedProcess {
        self.process.signal(Signal::TERM);
        self.process.wait(BOUND)
    }

    /// Sends SIGKILL and waits for the exit. The directory remains if the test provided it.
    pub fn kill(self) -> FinishedProcess {
        self.process.kill()
    }
}
