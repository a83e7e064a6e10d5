//! Charts in use: the cursor, the heat map, and an agent that goes away.

use std::fs;
use std::path::Path;

use pegel_testkit::{BrowserPage, REPOSITORY, TempDir, need};
use serde_json::{Value, json};

use super::{agent, screenshots, url};
use crate::PEGEL;

fn move_mouse(page: &mut BrowserPage, x: f64, y: f64) {
    page.call(
        "Input.dispatchMouseEvent",
        json!({"type": "mouseMoved", "x": x, "y": y}),
    );
}

#[test]
fn the_cursor_shows_the_time_and_all_values_in_every_chart() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 900);
    page.open(&format!("{}#/node?span=60", url(&agent)));
    page.until_live();
    page.until("document.querySelectorAll('.panel canvas').length >= 5");
    page.until("document.querySelectorAll('.panel .legend .value').length >= 10");
    // Stands still, so that the values under the cursor do.
    page.press("ArrowLeft");
    page.press("l");
    page.until("document.querySelector('.u-over').getBoundingClientRect().width > 100");
    let over = page.eval(
        "(() => { const b = document.querySelector('.u-over').getBoundingClientRect(); return [b.right - 12, b.top + 40] })()",
    );
    let [x, y] = [0, 1].map(|at| over[at].as_f64().expect("a number"));
    move_mouse(&mut page, x - 3.0, y);
    move_mouse(&mut page, x, y);
    page.until("document.querySelectorAll('.tip-row').length >= 5");
    let time = "document.querySelector('.tip strong').textContent";
    page.until(&format!("/^\\d\\d:\\d\\d:\\d\\d$/.test({time})"));
    // One chart lists its values; all charts show the time and a line at the same place.
    page.until(
        "[...document.querySelectorAll('.tip')].filter(tip => tip.checkVisibility()).length === 1",
    );
    page.until(
        "[...document.querySelectorAll('.panel:not(.is-empty) .cursor-time')].filter(time => time.checkVisibility()).length >= 5",
    );
    let seconds = "(text => text.split(':').reduce((sum, part) => sum * 60 + Number(part), 0))";
    page.until(&format!(
        "[...document.querySelectorAll('.cursor-time')].filter(time => time.checkVisibility())\
         .every(other => Math.abs({seconds}(other.textContent) - {seconds}({time})) <= 1)"
    ));
    // The values are those of the legend.
    page.until(
        "(() => { const panel = document.querySelector('.panel'); \
         const rows = new Map([...panel.querySelectorAll('.tip-row')].map(row => [row.children[1].textContent, row.children[2].textContent])); \
         return [...panel.querySelectorAll('.legend button')].every(item => { const value = item.querySelector('.value').textContent; \
         return value === '–' || rows.get(item.querySelector('.name').textContent) === value; }) })()",
    );
    let picture = screenshots().join("cursor-light-1440.png");
    fs::write(picture, page.screenshot()).expect("written");
    move_mouse(&mut page, 2.0, 2.0);
    page.until(
        "![...document.querySelectorAll('.tip, .cursor-time')].some(tip => tip.checkVisibility())",
    );
    assert_eq!(page.console_errors(), [""; 0]);
}

#[test]
fn without_an_agent_numbers_are_grey_and_their_age_is_shown() {
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
    page.open(&format!("http://{address}/"));
    page.until_live();
    page.until("document.querySelectorAll('.card .bar').length >= 6");
    let state = "document.getElementById('state').textContent";
    let pressed = "document.querySelector('.live').getAttribute('aria-pressed')";
    page.until(&format!("{state} === 'connected' && {pressed} === 'true'"));
    let opacity = "getComputedStyle(document.querySelector('.rows')).opacity";
    assert_eq!(page.eval(opacity), "1");
    first.stop();
    page.until(&format!(
        "/^disconnected · last sample [2-9] s ago$/.test({state})"
    ));
    page.until(&format!("{pressed} === 'false'"));
    assert_eq!(page.eval(opacity), "0.5");
    let picture = screenshots().join("disconnected-light-1440.png");
    fs::write(picture, page.screenshot()).expect("written");
    let _second = start(&address);
    page.until_live();
    page.until(&format!("{state} === 'connected' && {pressed} === 'true'"));
    assert_eq!(page.eval(opacity), "1");
}

#[test]
fn the_picture_of_the_documentation_shows_the_overview() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let mut page = BrowserPage::start(&chromium);
    page.before_all(include_str!("example_node.js"));
    page.prefer("light");
    page.size(1440, 860);
    page.open(&format!("{}#/overview?span=300", url(&agent)));
    page.until_live();
    let shown = |card: &str, text: &str| {
        format!(
            "[...document.querySelectorAll('.card')].some(card => card.querySelector('h2').textContent === '{card}' \
             && card.textContent.includes('{text}'))"
        )
    };
    for (card, text) in [
        ("Processors", "busy"),
        ("Load", "64 processors"),
        ("Disks", "nvme1n1"),
        ("File systems", "/scratch"),
        ("Network", "down: eth1"),
        ("GPUs", "GPU 1"),
        ("Recent changes", "node_disk_written_bytes_total"),
    ] {
        page.until(&shown(card, text));
    }
    assert_eq!(page.console_errors(), [""; 0]);
    let picture = page.screenshot();
    fs::write(screenshots().join("overview-example.png"), &picture).expect("written");
    let committed = Path::new(REPOSITORY).join("docs/images/page.png");
    if std::env::var_os("PEGEL_BLESS").is_some_and(|value| value == "1") {
        fs::write(&committed, &picture).expect("written");
    }
    // Fonts differ between machines, so that the pictures are compared by eye.
    let bytes = fs::metadata(&committed)
        .expect("a picture in docs/images")
        .len();
    assert!(bytes < 200 << 10, "{bytes} bytes");
}

#[test]
fn a_heat_map_shows_256_processors() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let mut page = BrowserPage::start(&chromium);
    let shots = screenshots();
    let mut names = vec![r#"pegel_received_total{input="collect"}"#.to_owned()];
    names.extend(
        (0..256).map(|cpu| format!(r#"node_cpu_seconds_total{{cpu="{cpu}",mode="idle"}}"#)),
    );
    page.before_all(include_str!("ticks.js"));
    for scheme in ["light", "dark"] {
        page.prefer(scheme);
        for (width, height) in [(1440, 900), (900, 900), (390, 844)] {
            page.size(width, height);
            page.open(&format!("{}#/node", url(&agent)));
            page.until("document.querySelectorAll('.panel').length >= 6");
            page.eval(&format!("window.names = {}; 0", Value::from(names.clone())));
            // Every second processor is idle, the others are busy half the time.
            page.eval(
                "window.value = (at, time) => at === 0 ? time / 500 : time / (at % 2 ? 1000 : 2000)",
            );
            // Loaded first: ticks that arrive meanwhile would be a gap. Each chart that is loaded
            // opens the stream again, which can lose ticks, so they are repeated until the chart is
            // drawn.
            page.until("window.stream?.url.includes('node_cpu_seconds_total')");
            page.until(
                "makeTicks(names, 2).then(() => !!document.querySelector('.panel.heat canvas'))",
            );
            page.eval("makeTicks(names, 300)");
            page.until(
                "document.querySelector('.heat-scale .value').textContent.includes('highest cpu')",
            );
            page.until("parseFloat(document.querySelector('.heat-scale .value').textContent.slice(5)) > 20");
            // Colours differ between neighbouring rows, so each processor has its own.
            let distinct = page.eval(
                "(() => { const canvas = document.querySelector('.panel.heat canvas'); const ratio = devicePixelRatio; \
                 const over = document.querySelector('.panel.heat .u-over'); const box = over.getBoundingClientRect(); \
                 const base = canvas.getBoundingClientRect(); const paint = canvas.getContext('2d'); \
                 const column = paint.getImageData((box.right - base.left - 4) * ratio, (box.top - base.top) * ratio, 1, box.height * ratio).data; \
                 let changes = 0; for (let at = 4; at < column.length; at += 4) changes += column[at] !== column[at - 4]; \
                 return [changes, box.height]; })()",
            );
            let [changes, rows] = [0, 1].map(|at| distinct[at].as_f64().expect("a number"));
            assert!(changes >= 200.0 && rows >= 256.0, "{distinct}");
            fs::write(
                shots.join(format!("heat-{scheme}-{width}.png")),
                page.screenshot(),
            )
            .expect("written");
        }
    }
    assert_eq!(page.console_errors(), [""; 0]);
}
