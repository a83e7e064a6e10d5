//! A soak: the agent under nominal load for N minutes, then a verdict on memory, files and disk.
//!
//! `cargo xtask soak --minutes 30` runs it. The agent samples at 10 Hz and moves its head to a block every 10 s, so that
//! minutes show what days would; one reader scrapes, one asks for history, one follows a stream. Memory must stay within a
//! bound, descriptors may not grow, the disk must stay within its bound. The store keeps up to 4 MiB of the blocks' indexes, which
//! takes some hundred blocks to fill: in a run of half an hour or more, memory may not grow any further in its second half.
#![allow(clippy::print_stdout, clippy::print_stderr)] // A soak is there to print.

use std::io::Read;
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pegel_bench::{process_cpu_time, release_binary, resident_mb};
use pegel_testkit::{Address, AgentBuilder, AgentProcess, get};

const CONFIG: &str = "rate: 100ms\nkeep: {memory: 10s, disk: 1h, bytes: 64MiB}\n";
const KEEP_BYTES: u64 = 64 << 20;
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// An idle agent takes a quarter of this.
const RESIDENT_MB_MAX: f64 = 40.0;
/// More than this in the second half of a long run is a leak; less is what an allocator does.
const GROWTH_MB_MAX: f64 = 1.5;
const LONG_SECONDS: f64 = 1790.0;

struct Reading {
    seconds: f64,
    resident: f64,
    files: usize,
    disk: u64,
}

fn main() -> ExitCode {
    let Some(minutes) = std::env::args()
        .nth(1)
        .and_then(|text| text.parse::<f64>().ok())
    else {
        eprintln!("usage: soak MINUTES");
        return ExitCode::from(2);
    };
    let agent = AgentBuilder::new(release_binary()).config(CONFIG).start();
    let stop = AtomicBool::new(false);
    let answers = AtomicU64::new(0);
    let length = Duration::from_secs_f64(minutes * 60.0);
    println!("soak: {minutes} min, 10 Hz, pid {}", agent.pid());
    println!(
        "{:>8} {:>10} {:>6} {:>10} {:>8}",
        "s", "MB", "files", "disk KiB", "cpu %"
    );
    let readings = std::thread::scope(|scope| {
        scope.spawn(|| {
            repeat(&stop, Duration::from_secs(1), || {
                ask(&agent, "/metrics", &answers)
            })
        });
        scope.spawn(|| {
            let path = "/api/v1/range?match=node_*&start=-5m&step=10s";
            repeat(&stop, Duration::from_secs(2), || {
                ask(&agent, path, &answers)
            });
        });
        scope.spawn(|| follow(&agent, &stop));
        let readings = watch(&agent, length);
        stop.store(true, Ordering::Relaxed);
        readings
    });
    println!("{} answers", answers.load(Ordering::Relaxed));
    agent.assert_conserved();
    agent.stop();
    verdict(&readings)
}

fn ask(agent: &AgentProcess, path: &str, answers: &AtomicU64) {
    let answer = get(agent.http(), path).expect("the agent answers");
    assert_eq!(answer.status, 200, "{path}");
    answers.fetch_add(1, Ordering::Relaxed);
}

fn repeat(stop: &AtomicBool, pause: Duration, work: impl Fn()) {
    while !stop.load(Ordering::Relaxed) {
        work();
        std::thread::sleep(pause);
    }
}

/// Reads a stream of changes and throws them away.
fn follow(agent: &AgentProcess, stop: &AtomicBool) {
    let Address::Tcp(address) = agent.http() else {
        return;
    };
    let mut stream = TcpStream::connect(address).expect("connected");
    stream
        .set_read_timeout(Some(Duration::from_secs(1)))
        .expect("set");
    std::io::Write::write_all(
        &mut stream,
        b"GET /api/v1/stream?match=*&rate=10 HTTP/1.0\r\nHost: localhost\r\n\r\n",
    )
    .expect("sent");
    let mut buffer = [0; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        if matches!(stream.read(&mut buffer), Ok(0)) {
            panic!("the stream ended");
        }
    }
}

fn watch(agent: &AgentProcess, length: Duration) -> Vec<Reading> {
    let started = Instant::now();
    let mut readings: Vec<Reading> = Vec::new();
    let mut cpu = process_cpu_time(agent.pid());
    while started.elapsed() < length {
        std::thread::sleep(SAMPLE_EVERY);
        let used = process_cpu_time(agent.pid());
        let status = agent.status();
        let size = |key: &str| status["store"][key].as_u64().expect("a number");
        let reading = Reading {
            seconds: started.elapsed().as_secs_f64(),
            resident: resident_mb(agent.pid()),
            files: std::fs::read_dir(format!("/proc/{}/fd", agent.pid()))
                .expect("the agent runs")
                .count(),
            disk: size("log_bytes") + size("block_bytes"),
        };
        // A line a minute is enough to see a trend.
        if readings.len().is_multiple_of(12) {
            let share = (used - cpu).as_secs_f64() / SAMPLE_EVERY.as_secs_f64() * 100.0;
            let Reading {
                seconds,
                resident,
                files,
                disk,
            } = &reading;
            println!(
                "{seconds:>8.0} {resident:>10.2} {files:>6} {:>10} {share:>8.2}",
                disk / 1024
            );
        }
        cpu = used;
        readings.push(reading);
    }
    readings
}

fn verdict(readings: &[Reading]) -> ExitCode {
    let later = &readings[readings.len() / 2..];
    let (first, last) = (
        &later[..later.len().div_ceil(4)],
        &later[later.len() * 3 / 4..],
    );
    let mean =
        |part: &[Reading]| part.iter().map(|r| r.resident).sum::<f64>() / part.len().max(1) as f64;
    let growth = mean(last) - mean(first);
    // The median: a question has the blocks that it reads open for as long as it takes.
    let files = |part: &[Reading]| {
        let mut files: Vec<usize> = part.iter().map(|r| r.files).collect();
        files.sort_unstable();
        files.get(files.len() / 2).copied().unwrap_or(0)
    };
    let disk = readings.iter().map(|r| r.disk).max().unwrap_or(0);
    println!(
        "resident {:+.2} MB in {:.0} s (slope {:+.2} MB/h), files {} → {}, disk at most {} KiB",
        growth,
        later.last().map_or(0.0, |r| r.seconds) - later.first().map_or(0.0, |r| r.seconds),
        slope_per_hour(later),
        files(first),
        files(last),
        disk / 1024
    );
    let most = readings.iter().map(|r| r.resident).fold(0.0, f64::max);
    let is_short = readings.last().is_none_or(|r| r.seconds < LONG_SECONDS);
    let mut is_good = true;
    for (holds, what) in [
        (most <= RESIDENT_MB_MAX, "memory passed its bound"),
        (is_short || growth <= GROWTH_MB_MAX, "memory grew"),
        (files(last) <= files(first) + 4, "descriptors grew"),
        (disk <= KEEP_BYTES, "the disk bound was passed"),
    ] {
        if !holds {
            println!("FAILED: {what}");
            is_good = false;
        }
    }
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Least squares over resident memory.
fn slope_per_hour(readings: &[Reading]) -> f64 {
    let count = readings.len().max(1) as f64;
    let mean_x = readings.iter().map(|r| r.seconds).sum::<f64>() / count;
    let mean_y = readings.iter().map(|r| r.resident).sum::<f64>() / count;
    let above: f64 = readings
        .iter()
        .map(|r| (r.seconds - mean_x) * (r.resident - mean_y))
        .sum();
    let below: f64 = readings.iter().map(|r| (r.seconds - mean_x).powi(2)).sum();
    if below > 0.0 {
        above / below * 3600.0
    } else {
        0.0
    }
}
