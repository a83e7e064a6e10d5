//! The table of system calls, compared with `strace -c` and with `pegel values`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{
    AgentProcess, BrowserPage, ChildProcess, REPOSITORY, TempDir, eventually, isolate, need,
};
use serde_json::Value;

use super::{agent, url};
use crate::PEGEL;

const BOUND: Duration = Duration::from_secs(60);
/// The loader calls these as often as it needs to, under mpirun more often.
const OF_LOADER: [&str; 18] = [
    "access",
    "arch_prctl",
    "brk",
    "close",
    "execve",
    "exit_group",
    "fstat",
    "mmap",
    "mprotect",
    "munmap",
    "newfstatat",
    "openat",
    "pread64",
    "prlimit64",
    "read",
    "rseq",
    "set_robust_list",
    "set_tid_address",
];

/// A row of the table: `[time, share, calls, errors, each, data, time/s, calls/s]` as shown.
type TableRows = BTreeMap<String, Vec<String>>;

#[test]
fn the_table_of_system_calls_is_complete_and_equals_strace_and_values() {
    let (Some(chromium), Some(cc), Some(strace)) = (need("chromium"), need("cc"), need("strace"))
    else {
        return;
    };
    let home = TempDir::new();
    let program = compile(&cc, &home);
    let mut traced = Command::new(strace);
    traced.args(["-c", "-f", "-o", "table", "--"]).arg(&program);
    isolate(&mut traced, &home);
    let finished = ChildProcess::start(&mut traced).wait(BOUND);
    assert_eq!(finished.code(), Some(0), "{finished}");
    let expected = read_table(&fs::read_to_string(home.join("table")).expect("written"));
    assert!(expected.len() >= 80, "{}: {expected:?}", expected.len());

    let agent = agent();
    eventually("history before the program", || {
        let store = agent.status()["store"].clone();
        let span = store["newest"].as_i64().zip(store["oldest"].as_i64());
        span.filter(|(newest, oldest)| newest - oldest > 2_000)
            .ok_or(store)
    });
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 1600);
    page.open(&format!("{}#/programs", url(&agent)));
    page.until_live();

    run(&agent, &[], &program);
    page.until("!!document.querySelector('.show-all')?.checkVisibility()");
    page.eval("document.querySelector('.show-all').click()");
    check_rows(&mut page, &agent, &expected, 1);

    // The ranks of a node are counted together.
    if let Some(mpirun) = need("mpirun") {
        let mpirun = mpirun.display().to_string();
        let launcher = [
            &*mpirun,
            "--allow-run-as-root",
            "--oversubscribe",
            "-n",
            "3",
        ];
        run(&agent, &launcher, &program);
        check_rows(&mut page, &agent, &expected, 4);
    }
    assert_eq!(page.console_errors(), [""; 0]);
}

fn compile(cc: &Path, home: &TempDir) -> PathBuf {
    let program = home.join("many_calls");
    let source = Path::new(REPOSITORY).join("tests/outputs/page/many_calls.c");
    let done = Command::new(cc)
        .args(["-O1", "-o"])
        .args([&program, &source])
        .output()
        .expect("the compiler starts");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    program
}

/// Runs the program under `pegel run -s`, each rank in its own wrapper.
fn run(agent: &AgentProcess, launcher: &[&str], program: &Path) {
    let pegel = PEGEL.path();
    let words = [launcher, &[pegel, "run", "-s", "--"]].concat();
    let mut command = Command::new(words[0]);
    agent.connect(&mut command);
    command.args(&words[1..]).arg(program);
    let finished = ChildProcess::start(&mut command).wait(BOUND);
    assert_eq!(finished.code(), Some(0), "{finished}");
}

/// Parses the calls of `strace -c`.
fn read_table(table: &str) -> BTreeMap<String, u64> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = *words.last()?;
        let hits = words.get(3)?.parse().ok()?;
        (name != "total" && !OF_LOADER.contains(&name)).then(|| (name.to_owned(), hits))
    };
    table.lines().filter_map(row).collect()
}

/// Waits until the table shows the calls of so many runs, and compares every row with
/// `pegel values`, its rates with the shown time.
fn check_rows(
    page: &mut BrowserPage,
    agent: &AgentProcess,
    expected: &BTreeMap<String, u64>,
    runs: u64,
) {
    let rows = eventually("all calls of all runs", || {
        let rows = table_rows(page);
        let wrong: Vec<_> = expected
            .iter()
            .filter(|(call, hits)| {
                let shown = rows.get(*call).map(|row| quantity(&row[2]));
                shown != Some((**hits * runs) as f64)
            })
            .map(|(call, hits)| (call.clone(), *hits, rows.get(call).cloned()))
            .collect();
        if wrong.is_empty() {
            Ok(rows)
        } else {
            Err(wrong)
        }
    });
    let values = agent.client(&["values", "--match", "strace_*", "-f", "json"]);
    let values: Value = serde_json::from_str(&values.stdout).expect("JSON");
    let value = |what: &str, call: &str| {
        let name = format!("strace_{what}_total{{scall=\"{call}\"}}");
        let mut all = values.as_array().expect("a list").iter();
        let found = all.find(|each| each["name"] == name.as_str());
        found.and_then(|each| each["value"].as_f64()).unwrap_or(0.0)
    };
    let names = rows
        .keys()
        .filter(|call| !OF_LOADER.contains(&call.as_str()));
    let mut windows = Vec::new();
    for call in names {
        let row = &rows[call];
        // Nothing was counted before the shown time, so the totals are the differences.
        let total = value("time", call);
        let shown = quantity(&row[0]);
        assert!(
            (shown - total).abs() <= total * 0.01,
            "{call}: {row:?}, {total} s"
        );
        assert!(
            (quantity(&row[2]) - value("hits", call)).abs() < 0.5,
            "{call}: {row:?}"
        );
        windows.push(quantity(&row[2]) / quantity(&row[7]));
        windows.push(shown / quantity(&row[6]));
    }
    // Rates are the differences over the shown time, in every row.
    let window = windows[0];
    assert!(window > 1.0 && window < 400.0, "{window}");
    for other in &windows {
        assert!((other - window).abs() < window * 0.02, "{windows:?}");
    }
}

fn table_rows(page: &mut BrowserPage) -> TableRows {
    let rows = page.eval(
        "[...document.querySelectorAll('.calls tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))",
    );
    let text = |cell: &Value| cell.as_str().unwrap_or_default().to_owned();
    rows.as_array()
        .expect("rows")
        .iter()
        .map(|row| row.as_array().expect("cells").iter().map(text))
        .map(|mut cells| (cells.next().unwrap_or_default(), cells.collect()))
        .collect()
}

/// Parses a number with its unit, as the page formats it.
fn quantity(text: &str) -> f64 {
    let digits = |c: char| c.is_ascii_digit() || c == '.' || c.is_whitespace();
    let end = text.find(|c| !digits(c)).unwrap_or(text.len());
    let number: String = text[..end].chars().filter(|c| !c.is_whitespace()).collect();
    let scale = match text[end..].trim_end_matches("/s") {
        "ns" => 1e-9,
        "µs" => 1e-6,
        "ms" => 1e-3,
        "k" => 1e3,
        "" | "s" => 1.0,
        other => panic!("unknown unit {other:?} in {text:?}"),
    };
    number.parse::<f64>().unwrap_or_else(|_| panic!("{text:?}")) * scale
}
