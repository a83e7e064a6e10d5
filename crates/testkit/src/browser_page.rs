//! A headless Chromium, controlled over its debugging pipe: no port, no library, no other program.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::{TempDir, eventually_within};

/// The maximum time for one command of the browser on a loaded machine.
const BOUND: Duration = Duration::from_secs(60);

/// Chromium reads commands from descriptor 3 and responds on 4; a shell moves the pipes there.
const WITH_PIPES: &str = r#"exec "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null"#;

/// One page of one browser; both are closed on drop.
#[derive(Debug)]
pub struct BrowserPage {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    last_id: u64,
    events: VecDeque<Value>,
    profile: TempDir,
}

impl BrowserPage {
    pub fn start(chromium: &Path) -> BrowserPage {
        let profile = TempDir::new();
        let mut child = Command::new("sh")
            .args(["-c", WITH_PIPES, "sh"])
            .arg(chromium)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
            ])
            .args([
                "--no-first-run",
                "--disable-extensions",
                "--disable-background-networking",
            ])
            .args(["--disable-dev-shm-usage", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("a shell");
        let commands = child.stdin.take().expect("piped");
        let output = child.stdout.take().expect("piped");
        let (sender, messages) = channel();
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut bytes = Vec::new();
            while output.read_until(0, &mut bytes).is_ok_and(|read| read > 0) {
                bytes.pop();
                let message = serde_json::from_slice(&bytes).expect("the browser speaks JSON");
                bytes.clear();
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut page = BrowserPage {
            child,
            commands,
            messages,
            session: None,
            last_id: 0,
            events: VecDeque::new(),
            profile,
        };
        page.attach();
        page
    }

    fn attach(&mut self) {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}));
        let id = target["targetId"].clone();
        let attached = self.call(
            "Target.attachToTarget",
            json!({"targetId": id, "flatten": true}),
        );
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Sends a command and waits for its response. Events that arrive meanwhile are kept.
    #[track_caller]
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut command = json!({"id": self.last_id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        self.commands
            .write_all(&bytes)
            .expect("the browser listens");
        let deadline = Instant::now() + BOUND;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(left);
            let message = message.unwrap_or_else(|error| panic!("{method}: {error}"));
            if message["id"] == self.last_id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push_back(message);
        }
    }

    pub fn size(&mut self, width: u32, height: u32) {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    pub fn prefer(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Adds a script that every document runs before its own.
    pub fn before_all(&mut self, script: &str) {
        self.call(
            "Page.addScriptToEvaluateOnNewDocument",
            json!({"source": script}),
        );
    }

    #[track_caller]
    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": "about:blank"}));
        let opened = self.call("Page.navigate", json!({"url": url}));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
    }

    /// Returns the value of an expression; promises are awaited.
    #[track_caller]
    pub fn eval(&mut self, expression: &str) -> Value {
        let parameters =
            json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", parameters);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn until(&mut self, expression: &str) {
        eventually_within(BOUND, expression, || match self.eval(expression) {
            Value::Bool(true) => Ok(()),
            other => Err(other),
        });
    }

    /// Waits until the page receives samples.
    #[track_caller]
    pub fn until_live(&mut self) {
        self.until("document.getElementById('state')?.dataset.state === 'live'");
    }

    pub fn press(&mut self, key: &str) {
        let text = if key.len() == 1 { key } else { "" };
        self.call(
            "Input.dispatchKeyEvent",
            json!({"type": "keyDown", "key": key, "text": text}),
        );
        self.call(
            "Input.dispatchKeyEvent",
            json!({"type": "keyUp", "key": key}),
        );
    }

    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Presses the left button at the first point, moves to the second and releases it.
    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        let mut mouse = |kind: &str, (x, y): (f64, f64)| {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        };
        mouse("mouseMoved", from);
        mouse("mousePressed", from);
        mouse("mouseMoved", ((from.0 + to.0) / 2.0, from.1));
        mouse("mouseMoved", to);
        mouse("mouseReleased", to);
    }

    /// Sets the directory for files that the page saves.
    pub fn save_to(&mut self, dir: &Path) {
        self.call(
            "Browser.setDownloadBehavior",
            json!({"behavior": "allow", "downloadPath": dir}),
        );
    }

    pub fn screenshot(&mut self) -> Vec<u8> {
        let answer = self.call("Page.captureScreenshot", json!({"format": "png"}));
        base64(answer["data"].as_str().expect("a picture"))
    }

    /// Returns the bytes that scripts use after a garbage collection.
    pub fn heap_bytes(&mut self) -> f64 {
        for _ in 0..3 {
            self.call("HeapProfiler.collectGarbage", json!({}));
        }
        self.call("Runtime.getHeapUsage", json!({}))["usedSize"]
            .as_f64()
            .expect("a number")
    }

    /// Returns all errors in the page's console so far.
    pub fn console_errors(&mut self) -> Vec<String> {
        self.eval("0");
        let events = std::mem::take(&mut self.events);
        let complaint = |event: &Value| {
            let parameters = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" => Some(parameters["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled" => {
                    let kind = parameters["type"].as_str()?;
                    matches!(kind, "error" | "warning" | "assert")
                        .then(|| parameters["args"].to_string())
                }
                "Log.entryAdded" => Some(parameters["entry"].to_string()),
                _ => None,
            }
        };
        let complaints = events.iter().filter_map(complaint).collect();
        self.events = events;
        complaints
    }

    /// Returns the URLs that the page has requested so far.
    pub fn requests(&mut self) -> Vec<String> {
        self.eval("0");
        let sent = |event: &&Value| event["method"] == "Network.requestWillBeSent";
        let url = |event: &Value| {
            event["params"]["request"]["url"]
                .as_str()
                .map(str::to_owned)
        };
        self.events.iter().filter(sent).filter_map(url).collect()
    }

    /// Returns the process group of the browser.
    pub fn group(&self) -> u32 {
        self.child.id()
    }

    pub fn forget_events(&mut self) {
        self.events.clear();
    }
}

impl Drop for BrowserPage {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
        // Its helpers end a moment later; what they still write would keep the folder from going
        // away.
        let profile = self.profile.path().to_owned();
        let deadline = Instant::now() + Duration::from_secs(5);
        while std::fs::remove_dir_all(&profile).is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("{other} in base64"),
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits =
            four.iter().fold(0, |bits, byte| bits << 6 | digit(*byte)) << (6 * (4 - four.len()));
        let [_, first, second, third] = bits.to_be_bytes();
        bytes.extend_from_slice(&[first, second, third][..four.len() - 1]);
    }
    bytes
}
