//! The page in a real browser: it shows the data, survives restarts, stays small, and contacts no
//! other host.

mod calls;
mod charts;
mod embedded;
mod expressions;
mod jobs;
mod marks;
mod mpi;
mod nodes;
mod numbers;
mod prefix;
mod processes;

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use pegel_testkit::{AgentProcess, BrowserPage, REPOSITORY, TempDir, eventually, need};
use prefix::{PREFIX, PrefixProxy};
use serde_json::Value;

use crate::PEGEL;

/// The SHA-256 sum of uPlot's release 1.6.32.
const UPLOT: &str = "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f";
const VIEWS: [&str; 6] = [
    "overview",
    "node",
    "processes",
    "programs",
    "metrics",
    "status",
];

fn agent() -> AgentProcess {
    PEGEL.agent().start()
}

fn url(agent: &AgentProcess) -> String {
    format!("http://{}/", agent.http())
}

/// Returns the folder of the pictures that the tests leave, to be looked at.
fn screenshots() -> PathBuf {
    let folder = Path::new(REPOSITORY).join("target/page-screenshots");
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// The number of lines with a value, in all visible charts.
const LINES: &str = "document.querySelectorAll('.panel .legend .value').length";

#[test]
fn every_view_shows_live_data_of_its_own_agent_only() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 900);
    page.before_all(include_str!("page/processes.js"));
    for view in VIEWS {
        page.open(&format!("{}#/{view}", url(&agent)));
        page.until_live();
        match view {
            "overview" => {
                page.until("document.querySelectorAll('.card .bar').length >= 6");
                page.until("document.querySelector('.hero .row-text').textContent.includes('%')");
                page.until("[...document.querySelectorAll('.cards .is-empty .note')].every(note => note.textContent.length > 10)");
            }
            "node" => {
                page.until("document.querySelectorAll('.panel canvas').length >= 6");
                page.until(&format!("{LINES} >= 10"));
                let moving = "document.querySelector('.timebar .range').textContent";
                let before = page.eval(moving);
                page.until(&format!("{moving} !== {before}"));
            }
            "processes" => page.until("document.querySelectorAll('.group [data-by]').length === 4"),
            "programs" => {
                page.until("document.querySelector('main').textContent.includes('pegel run')")
            }
            "metrics" => page.until("document.querySelectorAll('.results button').length > 50"),
            _ => {
                page.until("document.querySelectorAll('.badge.is-active').length > 10");
                page.until(
                    "document.querySelector('main').textContent.includes('not on this node')",
                );
                page.until("document.querySelector('main').textContent.includes('keep.disk')");
            }
        }
        page.until("[...document.querySelectorAll('.panel.is-empty .message')].every(message => message.textContent.length > 10)");
    }
    assert_eq!(page.console_errors(), [""; 0]);
    let home = url(&agent);
    for request in page.requests() {
        assert!(
            request.starts_with(&home) || request == "about:blank",
            "{request}"
        );
    }
    agent.assert_conserved();
}

#[test]
fn a_metric_is_found_charted_grouped_and_saved() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let downloads = TempDir::new();
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 900);
    page.save_to(downloads.path());
    page.open(&url(&agent));
    page.until_live();
    page.press("/");
    page.until("document.activeElement?.id === 'search'");
    page.type_text("cpu_seconds mode");
    page.until(
        "document.querySelector('.results button')?.dataset.name === 'node_cpu_seconds_total'",
    );
    page.press("Enter");
    // Selected twice, it is still one chart.
    page.eval("document.querySelector('.results button').click()");
    page.until("document.querySelectorAll('.chosen .panel canvas').length === 1");
    let modes = "[...document.querySelectorAll('.chosen .legend .name')].map(name => name.textContent).join()";
    // Grouped by mode without being asked; one line per processor and mode on request.
    page.until(&format!(
        "{modes} === 'idle,iowait,irq,nice,softirq,steal,system,user'"
    ));
    page.until("decodeURIComponent(location.hash).includes('chart=node_cpu_seconds_total')");
    page.eval(
        "(() => { const by = document.querySelector('.panel-tools select'); by.value = '(each)'; \
         by.dispatchEvent(new Event('change')); })()",
    );
    page.until("decodeURIComponent(location.hash).includes('by=(each)|node_cpu_seconds_total')");
    page.until("!!document.querySelector('.chosen .legend .name')?.textContent.includes('cpu=0')");
    // All modes of all processors together take as many seconds per second as there are processors.
    page.eval(
        "(() => { const by = document.querySelector('.panel-tools select'); by.value = '(all)'; \
         by.dispatchEvent(new Event('change')); })()",
    );
    let count = thread::available_parallelism().expect("known").get();
    let shown = "parseFloat(document.querySelector('.chosen .legend .value')?.textContent)";
    page.until(&format!("Math.abs({shown} - {count}) < {count} * 0.25"));
    page.until(&format!("{modes} === 'node_cpu_seconds_total'"));

    page.eval("[...document.querySelectorAll('.chosen .panel-tools button')].filter(b => b.textContent === 'CSV')[0].click()");
    let text = eventually("the numbers are saved", || saved(downloads.path(), "csv"));
    let text = String::from_utf8(text).expect("text");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("time,ms,node_cpu_seconds_total"));
    let row: Vec<&str> = lines.next_back().expect("a sample").split(',').collect();
    assert_eq!(row.len(), 3, "{row:?}");
    assert!(
        row[0].ends_with('Z') && row[1].parse::<i64>().is_ok(),
        "{row:?}"
    );
    page.eval("[...document.querySelectorAll('.chosen .panel-tools button')].filter(b => b.textContent === 'PNG')[0].click()");
    let picture = eventually("the picture is saved", || saved(downloads.path(), "png"));
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n") && picture.len() > 2000);
    // It has two pixels for each of the page, and the width is the first field of its header.
    let width = u32::from_be_bytes(picture[16..20].try_into().expect("four bytes"));
    let shown = page.eval("document.querySelector('.chosen .plot').clientWidth");
    assert_eq!(
        Some(u64::from(width)),
        shown.as_u64().map(|shown| 2 * (shown + 24))
    );
    assert_eq!(page.console_errors(), [""; 0]);

    // The URL contains the whole state: another page that opens it shows the same.
    let address = page.eval("location.href");
    page.open(address.as_str().expect("text"));
    page.until(&format!("{modes} === 'node_cpu_seconds_total'"));
}

fn saved(dir: &Path, ending: &str) -> Result<Vec<u8>, String> {
    let entries = fs::read_dir(dir).map_err(|error| error.to_string())?;
    let found = entries.flatten().map(|entry| entry.path());
    let mut found = found.filter(|path| path.extension().is_some_and(|known| known == ending));
    let path = found.next().ok_or("no file yet")?;
    let bytes = fs::read(&path).map_err(|error| error.to_string())?;
    if bytes.is_empty() {
        Err("empty yet".to_owned())
    } else {
        Ok(bytes)
    }
}

#[test]
fn a_hidden_page_disconnects_and_fills_its_gap_later() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 900);
    page.open(&format!("{}#/metrics?chart=node_time_seconds", url(&agent)));
    page.until_live();
    eventually("a few samples", || {
        let shown = points(&mut page).len();
        if shown >= 4 { Ok(()) } else { Err(shown) }
    });
    // Another tab comes to the front.
    let turn = |hidden: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{value: {hidden}, configurable: true}}); \
             document.dispatchEvent(new Event('visibilitychange'))"
        )
    };
    page.eval(&turn(true));
    page.until("document.getElementById('state').dataset.state === 'paused'");
    let left = points(&mut page).len();
    page.forget_events();
    let stored = agent.samples("node_time_seconds").len();
    eventually("six samples that the page does not see", || {
        let now = agent.samples("node_time_seconds").len();
        if now >= stored + 6 { Ok(()) } else { Err(now) }
    });
    assert_eq!(page.requests(), [""; 0], "it asks for nothing meanwhile");
    assert_eq!(points(&mut page).len(), left);
    page.eval(&turn(false));
    page.until_live();
    eventually("no hole", || {
        let shown: Vec<i64> = points(&mut page).iter().map(|(time, _)| *time).collect();
        let (first, last) = (shown[0], shown[shown.len() - 1]);
        let path = format!("/api/v1/range?match=node_time_seconds&start={first}&end={last}");
        let stored = agent.get(&path).json();
        let stored = stored[0]["points"].as_array().cloned().unwrap_or_default();
        // The first sample of an agent is taken at once, between two steps.
        let steps = stored
            .iter()
            .filter_map(|point| Some(point[0].as_i64()? / 500 * 500));
        let missing: Vec<i64> = steps.filter(|time| !shown.contains(time)).collect();
        if missing.is_empty() && stored.len() >= left + 6 {
            Ok(())
        } else {
            Err((missing, shown))
        }
    });
    assert_eq!(page.console_errors(), [""; 0]);
}

#[test]
fn leaving_the_page_frees_its_connection() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let mut page = BrowserPage::start(&chromium);
    // A browser keeps the pages of its history, and has six connections per host: the seventh page
    // would wait.
    for _ in 0..9 {
        let begun = Instant::now();
        page.open(&url(&agent));
        page.until_live();
        // A connection that is never freed would be missed for a minute.
        assert!(
            begun.elapsed() < Duration::from_secs(45),
            "{:?}",
            begun.elapsed()
        );
    }
    assert_eq!(page.console_errors(), [""; 0]);
}

#[test]
fn programs_are_shown_by_job_with_their_calls_and_own_metrics() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let statsd = agent.endpoint.json["statsd"]["udp"][0].clone();
    let statsd = statsd.as_str().expect("a statsd listener").to_owned();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let send = |text: &str| socket.send_to(text.as_bytes(), &statsd).expect("sent");
    let calls = "mpi_time_total:0.3|c|#call:MPI_Allreduce,jobid:48213\n\
                 mpi_hits_total:30|c|#call:MPI_Allreduce,jobid:48213\n\
                 mpi_size_total:4096|c|#call:MPI_Allreduce,jobid:48213\n\
                 mpi_time_total:0.1|c|#call:MPI_Bcast,jobid:48213\n\
                 mpi_hits_total:1|c|#call:MPI_Bcast,jobid:48213\n\
                 strace_size_total:8192|c|#scall:write,jobid:48213\n\
                 strace_hits_total:2|c|#scall:write,jobid:48213\n\
                 train.loss:0.25|g|#jobid:48213\n\
                 other.queue:7|g";
    send(calls);
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 1600);
    page.open(&format!("{}#/programs", url(&agent)));
    page.until_live();
    let text = "document.querySelector('main').textContent";
    page.until(&format!(
        "{text}.includes('Job 48213') && {text}.includes('Without a job')"
    ));
    let rows = "[...document.querySelectorAll('.calls tbody tr')].map(row => row.cells[0].textContent).join()";
    let shares = "[...document.querySelectorAll('.calls tbody tr')].slice(0, 2).map(row => parseFloat(row.cells[2].textContent))";
    eventually("the calls are ranked by their time", || {
        send(calls);
        let (order, shares) = (page.eval(rows), page.eval(shares));
        let is_near = |at: usize, wanted: f64| {
            let share = shares[at].as_f64();
            share.is_some_and(|share| (share - wanted).abs() < 5.0)
        };
        let is_right =
            order == "MPI_Allreduce,MPI_Bcast,write" && is_near(0, 75.0) && is_near(1, 25.0);
        if is_right {
            Ok(())
        } else {
            Err((order, shares))
        }
    });
    page.until(&format!(
        "{text}.includes('train.loss') && {text}.includes('0.25')"
    ));
    page.until(&format!("{text}.includes('other.queue')"));
    // The view of metrics counts the series of each sender.
    page.press("5");
    page.until(&format!(
        "{text}.includes('Series by sender') && {text}.includes('127.0.0.1')"
    ));
    assert_eq!(page.console_errors(), [""; 0]);
}

/// Returns the points of the first chart as `[[ms, value], …]`, from the page's CSV export.
const POINTS: &str = "(async () => {
    const texts = []; const make = URL.createObjectURL; const click = HTMLAnchorElement.prototype.click;
    URL.createObjectURL = blob => { texts.push(blob.text()); return 'data:,'; };
    HTMLAnchorElement.prototype.click = () => {};
    [...document.querySelectorAll('.chosen .panel-tools button')].find(b => b.textContent === 'CSV')?.click();
    URL.createObjectURL = make; HTMLAnchorElement.prototype.click = click;
    const rows = (await texts[0] ?? '').trim().split('\\n').slice(1).map(row => row.split(','));
    return rows.filter(row => row[2] !== '').map(row => [Number(row[1]), Number(row[2])]);
})()";

fn points(page: &mut BrowserPage) -> Vec<(i64, f64)> {
    let rows = page.eval(POINTS);
    let rows = rows.as_array().expect("rows");
    let point = |row: &Value| Some((row[0].as_i64()?, row[1].as_f64()?));
    rows.iter()
        .map(|row| point(row).expect("numbers"))
        .collect()
}

#[test]
fn live_values_equal_the_stored_ones() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 900);
    let address = format!("{}#/metrics?chart=node_context_switches_total", url(&agent));
    page.open(&address);
    page.until_live();
    page.until("document.querySelectorAll('.chosen canvas').length === 1");
    let loaded = points(&mut page).len();
    let live = eventually("a dozen ticks", || {
        let shown = points(&mut page);
        if shown.len() > loaded + 12 {
            Ok(shown)
        } else {
            Err(shown.len())
        }
    });
    page.open(&address);
    page.until_live();
    let stored = eventually("the same from the store", || {
        let shown = points(&mut page);
        if shown.len() > live.len() {
            Ok(shown)
        } else {
            Err(shown.len())
        }
    });
    // On a busy machine one event may cover two ticks: then the mean is exact, the single values
    // are not.
    let (mut same, mut sums) = (0, (0.0, 0.0));
    for (time, rate) in &live {
        let known = stored.iter().find(|(known, _)| known == time);
        let (_, expected) = known.unwrap_or_else(|| panic!("{time} is not in the store"));
        // Live rates use the times of reading, stored ones the cells of the chart.
        same += usize::from((rate - expected).abs() <= expected.abs() * 0.1 + 1e-9);
        sums = (sums.0 + rate, sums.1 + expected);
    }
    assert!(
        same * 2 > live.len(),
        "{same} of {}: {live:?} {stored:?}",
        live.len()
    );
    assert!(
        (sums.0 - sums.1).abs() < sums.1 * 0.05 + 1.0,
        "{sums:?}: {live:?} {stored:?}"
    );
}

#[test]
fn a_sample_in_the_store_before_the_stream_is_drawn_when_the_stream_brings_it() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let mut page = BrowserPage::start(&chromium);
    page.open(&url(&agent));
    // The store has the sample of 2000, which was read 3 ms late; the stream is at 1500.
    let rate = page.eval(
        "import(new URL('page/frame.js', document.baseURI)).then(({ Frame }) => {
            const frame = new Frame([{ name: 'steps', rate: true }]);
            frame.reset(0, 2000, 500, 500);
            frame.load([{ name: 'steps', labels: {}, points: [[1000, 10], [1500, 20], [2000, 40]] }], 1500);
            frame.meet({ name: 'steps', labels: {}, text: 'steps', value: 40, ts: 2003 });
            frame.tick(2000);
            return frame.lines()[0].data;
        })",
    );
    let rates: Vec<_> = (2..5).map(|at| rate[at].as_f64()).collect();
    assert_eq!(rates, [None, Some(20.0), Some(20.0 / 0.503)], "{rate}");
}

#[test]
fn history_equals_the_store_in_every_window() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = PEGEL.agent().args(&["--rate", "0.1"]).start();
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 900);
    page.open(&format!("{}#/metrics?chart=node_time_seconds", url(&agent)));
    page.until_live();
    page.until("document.querySelectorAll('.chosen canvas').length === 1");
    eventually("some history", || {
        let store = agent.status()["store"].clone();
        let span = store["newest"].as_i64().zip(store["oldest"].as_i64());
        span.filter(|(newest, oldest)| newest - oldest > 12_000)
            .ok_or(store)
    });
    // All history: the window begins with the oldest sample.
    page.press("a");
    let window = "import(new URL('page/window.js', document.baseURI)).then(m => m.bounds())";
    let oldest = agent.status()["store"]["oldest"].as_i64().expect("a time");
    let begin = page.eval(window)[0].as_f64().expect("a time") as i64;
    assert!((begin - oldest).abs() < 61_000, "{begin} {oldest}");

    // A drag over the middle of the chart zooms in, and stops following.
    page.until("document.querySelector('.u-over')?.getBoundingClientRect().width > 300");
    let over = page.eval("(() => { const b = document.querySelector('.u-over').getBoundingClientRect(); return [b.left, b.top, b.width, b.height] })()");
    let [left, top, width, height] = [0, 1, 2, 3].map(|at| over[at].as_f64().expect("a number"));
    page.press("l");
    page.eval("import(new URL('page/window.js', document.baseURI)).then(m => m.move(10e3, null))");
    page.until("document.querySelector('.range').textContent.startsWith('last 10 s')");
    page.drag(
        (left + width * 0.2, top + height / 2.0),
        (left + width * 0.7, top + height / 2.0),
    );
    page.until("document.querySelector('.live').getAttribute('aria-pressed') === 'false'");
    let bounds = page.eval(window);
    let [from, to] = [0, 1].map(|at| bounds[at].as_f64().expect("a time") as i64);
    assert!((4_000..7_000).contains(&(to - from)), "{from} {to}");
    page.until("location.hash.includes('to=')");

    // The chart shows the stored samples, one by one: a cell of the chart is as long as the
    // interval of sampling, and a late sample has its time of reading.
    let path = format!("/api/v1/range?match=node_time_seconds&start={from}&end={to}");
    let stored = agent.get(&path).json();
    let stored: Vec<(i64, f64)> = stored[0]["points"]
        .as_array()
        .expect("points")
        .iter()
        .map(|point| {
            let time = point[0].as_i64().expect("a time");
            (
                time - time.rem_euclid(100),
                point[1].as_f64().expect("a value"),
            )
        })
        .collect();
    assert!(stored.len() > 30, "{}", stored.len());
    eventually("the zoomed chart is loaded", || {
        let shown = points(&mut page);
        let missing: Vec<_> = stored
            .iter()
            .filter(|point| !shown.contains(point))
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(format!("{missing:?} not in {shown:?}"))
        }
    });
    // One key goes back in time, another returns to live data.
    page.press("ArrowLeft");
    page.until(&format!("({window}).then(b => b[1] < {to})"));
    page.press("l");
    page.until("document.querySelector('.live').getAttribute('aria-pressed') === 'true'");
    // Before the oldest sample the chart reports that there is no data.
    page.eval(&format!(
        "location.hash = '#/metrics?chart=node_time_seconds&span=60&to={}'",
        oldest - 600_000
    ));
    page.until("document.querySelector('.track').getAttribute('aria-valuetext') !== ''");
    assert_eq!(page.console_errors(), [""; 0]);
}

#[test]
fn an_agent_that_comes_back_is_found_and_the_gap_is_filled() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let home = TempDir::new();
    let start = |listen: &str| {
        PEGEL
            .agent()
            .dir(home.join("store"))
            .listen(&[listen])
            .start()
    };
    let first = start("127.0.0.1:0");
    let address = first.http().to_string();
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 900);
    page.open(&format!(
        "http://{address}/#/metrics?chart=node_time_seconds"
    ));
    page.until_live();
    eventually("a few samples", || {
        let shown = points(&mut page).len();
        if shown >= 4 { Ok(()) } else { Err(shown) }
    });
    // Not the newest one: the last sample, which the agent takes when it stops, may fall into the
    // same step of the chart.
    let before = points(&mut page)[2];
    first.stop();
    page.until("document.getElementById('state').dataset.state === 'lost'");
    // Requests that failed meanwhile are in the console, as expected.
    let second = start(&address);
    let stored_first = second.status()["started"].as_i64().expect("a time");
    page.until_live();
    eventually("both sides of the gap", || {
        let shown = points(&mut page);
        let has_before = shown.contains(&before);
        // The first tick after the start precedes the new connection: only the store has it.
        let after = shown.iter().find(|(time, _)| *time >= stored_first - 500);
        let filled = after.is_some_and(|(time, _)| *time <= stored_first + 1_500);
        if has_before && filled {
            Ok(())
        } else {
            Err((before, stored_first, shown))
        }
    });
    page.forget_events();
    let count = points(&mut page).len();
    eventually("a further sample", || {
        let now = points(&mut page).len();
        if now > count { Ok(()) } else { Err(now) }
    });
    page.until("document.getElementById('notice').hidden");
    assert_eq!(page.console_errors(), [""; 0]);
}

#[test]
fn the_page_works_behind_a_prefix() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let proxy = PrefixProxy::start(agent.http().to_string());
    let mut page = BrowserPage::start(&chromium);
    page.size(1200, 800);
    page.open(&format!("http://{}{PREFIX}/", proxy.address));
    page.until_live();
    page.until("document.querySelectorAll('.card .bar').length >= 6");
    page.press("2");
    page.until("location.hash.startsWith('#/node')");
    page.until(&format!("{LINES} >= 10"));
    page.press("6");
    page.until("document.querySelectorAll('.badge.is-active').length > 10");
    assert_eq!(page.console_errors(), [""; 0]);
    assert_eq!(*proxy.unprefixed_paths.lock(), [""; 0]);
}

#[test]
fn a_page_that_is_open_for_hours_does_not_grow() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let list = agent.get("/api/v1/list").json();
    let names: Vec<&str> = list
        .as_array()
        .expect("series")
        .iter()
        .filter_map(|series| series["name"].as_str())
        .collect();
    let pulse = r#"pegel_received_total{input="collect"}"#;
    assert!(names.contains(&pulse));
    let wanted = |name: &&str| {
        [
            "node_cpu",
            "node_load",
            "node_memory_Mem",
            "node_memory_Cached",
            "node_memory_Buffers",
            "node_memory_SRecl",
            "node_pressure",
            "node_context",
            "node_procs",
            "node_intr",
            "node_forks",
            pulse,
        ]
        .iter()
        .any(|start| name.starts_with(start))
    };
    let names: Vec<&str> = names.into_iter().filter(wanted).collect();
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 900);
    page.before_all(include_str!("page/ticks.js"));
    page.open(&format!("{}#/node", url(&agent)));
    page.until("document.querySelectorAll('.panel').length >= 6");
    page.eval(&format!("window.names = {}; 0", Value::from(names)));
    let mut used = Vec::new();
    for ticks in [1_000, 1_000, 9_000, 9_000] {
        // A command of the browser has a limit of a minute; so many ticks may take longer on a busy
        // machine.
        for _ in 0..ticks / 500 {
            page.eval("makeTicks(names, 500)");
        }
        let nodes = page
            .eval("document.querySelectorAll('*').length")
            .as_u64()
            .expect("a number");
        used.push((page.heap_bytes(), nodes));
    }
    page.until(&format!("{LINES} >= 10"));
    let ((early, nodes), (late, nodes_late)) = (used[1], used[3]);
    // Real ticks arrive meanwhile, until the page's buffers are full. A leak of fifty bytes for
    // each of the 18,000 ticks would be noticed.
    assert!(late < early * 1.05 + 900_000.0, "{used:?}");
    assert!(nodes_late <= nodes + 20, "{used:?}");
    assert_eq!(page.console_errors(), [""; 0]);
}

#[test]
fn the_page_is_readable_in_both_themes_and_at_every_width() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let shots = screenshots();
    // So that the view of programs has a table.
    agent.client(&["run", "-s", "--", "ls", "-R", "/usr/share/doc"]);
    let mut page = BrowserPage::start(&chromium);
    page.before_all(include_str!("page/processes.js"));
    for scheme in ["light", "dark"] {
        page.prefer(scheme);
        for (width, height) in [(1440, 900), (900, 900), (390, 844)] {
            page.size(width, height);
            for view in VIEWS {
                let chart = if view == "metrics" {
                    "&chart=by%3Dmode%2Cstack%3D1%7Cnode_cpu_seconds_total"
                } else {
                    ""
                };
                page.open(&format!("{}#/{view}?span=60{chart}", url(&agent)));
                page.until_live();
                page.until("document.querySelectorAll('.panel, .card').length > 0");
                page.until("![...document.querySelectorAll('.panel .message')].some(m => m.checkVisibility() && m.getBoundingClientRect().top < innerHeight && m.textContent.startsWith('Loading'))");
                let theme = page.eval("document.documentElement.dataset.theme");
                assert_eq!(theme, scheme);
                let poor = page.eval(include_str!("page/contrast.js"));
                assert_eq!(poor, Value::Array(Vec::new()), "{view}, {scheme}, {width}");
                let wide = page.eval("document.documentElement.scrollWidth");
                assert!(
                    wide.as_u64().is_some_and(|wide| wide <= u64::from(width)),
                    "{view} at {width}: {wide}"
                );
                let poor = page.eval(include_str!("page/layout.js"));
                assert_eq!(poor, Value::Array(Vec::new()), "{view}, {scheme}, {width}");
                let picture = page.screenshot();
                assert!(picture.len() > 10_000, "{view}: {}", picture.len());
                fs::write(shots.join(format!("{view}-{scheme}-{width}.png")), picture)
                    .expect("written");
            }
        }
    }
    // The switch overrides the system's setting, and is stored.
    page.press("t");
    page.until("document.documentElement.dataset.theme === 'light'");
    page.open(&url(&agent));
    page.until_live();
    assert_eq!(page.eval("document.documentElement.dataset.theme"), "light");
    // Every control can be reached with the keyboard, and shows its focus.
    page.press("Tab");
    page.until("document.activeElement !== document.body");
    assert_eq!(page.console_errors(), [""; 0]);
}

#[test]
fn uplot_is_as_its_authors_released_it() {
    let Some(sha256sum) = need("sha256sum") else {
        return;
    };
    let path = Path::new(REPOSITORY).join("crates/serve/web/uplot.js");
    let output = Command::new(&sha256sum).arg(&path).output().expect("a sum");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with(UPLOT), "{text}");
}
