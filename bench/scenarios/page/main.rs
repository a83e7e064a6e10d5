//! The web page: CPU time of the whole browser per tick with fifty charts on the screen, and the
//! size of all files.

use std::collections::BTreeSet;
use std::fs;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use pegel_bench::{BenchReport, FigureGate, is_trial_run, release_binary};
use pegel_testkit::{AgentBuilder, AgentProcess, BrowserPage, get_with, need};

const TICK: Duration = Duration::from_millis(500);
const POINTS: usize = 600;

fn main() -> ExitCode {
    let mut report = BenchReport::new("page");
    let agent = AgentBuilder::new(release_binary()).start();
    let kilobytes = transferred(&agent) as f64 / 1000.0;
    report.row(
        "all files of the page, compressed",
        "KB",
        FigureGate::AtMost(130.0),
        vec![kilobytes],
    );
    if let Some(chromium) = need("chromium") {
        let mut page = BrowserPage::start(&chromium);
        page.size(1700, 4600);
        page.before_all(include_str!("../../../tests/outputs/page/ticks.js"));
        page.open(&format!("http://{}/#/metrics", agent.http()));
        page.until("document.querySelectorAll('.results button').length > 0");
        page.eval(include_str!("panels.js"));
        page.until("document.querySelectorAll('.panel').length === 50");
        page.eval(&format!("makeTicks(names, {})", POINTS + 10));
        page.until("document.querySelectorAll('.panel canvas').length === 50");
        let (ticks, windows) = if is_trial_run() { (2, 1) } else { (20, 3) };
        let figures = (0..windows)
            .map(|_| cpu_per_tick(&mut page, ticks))
            .collect();
        report.row(
            "50 panels × 600 points at 2 Hz, all processes",
            "ms per tick",
            FigureGate::AtMost(50.0),
            figures,
        );
    }
    agent.stop();
    report.finish()
}

/// Returns the compressed bytes that a browser transfers for the first page load.
fn transferred(agent: &AgentProcess) -> usize {
    let headers = [("Accept", "text/html"), ("Accept-Encoding", "identity")];
    let index = get_with(agent.http(), "/", &headers).expect("the page");
    let mut files: BTreeSet<&str> = index
        .text()
        .split("=\"page/")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    files.insert("index.html");
    let gzipped = [("Accept-Encoding", "gzip")];
    let bytes = |file: &&str| {
        get_with(agent.http(), &format!("/page/{file}"), &gzipped)
            .expect("a file")
            .body
            .len()
    };
    files.iter().map(bytes).sum()
}

fn cpu_per_tick(page: &mut BrowserPage, ticks: u32) -> f64 {
    let before = group_cpu_time(page.group());
    let mut next = Instant::now();
    for _ in 0..ticks {
        page.eval("makeTicks(names, 1)");
        next += TICK;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    (group_cpu_time(page.group()) - before).as_secs_f64() * 1000.0 / f64::from(ticks)
}

/// Returns the CPU time of all processes of a group, including ended threads.
fn group_cpu_time(group: u32) -> Duration {
    let entries = fs::read_dir("/proc").expect("proc").flatten();
    let ticks: u64 = entries
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter_map(|stat| member_ticks(&stat, group))
        .sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// Returns the clock ticks of a process from its `stat`, if it belongs to the group.
fn member_ticks(stat: &str, group: u32) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let is_member = fields.get(2)?.parse() == Ok(group);
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    is_member.then_some(ticks(11)? + ticks(12)?)
}
