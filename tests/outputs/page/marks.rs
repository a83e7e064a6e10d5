//! Marks and phases on the charts of the page.

use std::fs;

use pegel_testkit::{AgentProcess, BrowserPage, eventually, need};
use serde_json::json;

use super::{agent, screenshots, url};

const SPAN_MS: f64 = 60_000.0;

fn mark(agent: &AgentProcess, args: &[&str]) {
    let finished = agent.client(&[&["mark"], args].concat());
    assert_eq!(finished.code(), Some(0), "{finished}");
}

/// Moves the mouse over the first chart, to a share of its width, and returns the marks shown.
fn marks_at(page: &mut BrowserPage, share: f64) -> String {
    let over = page.eval(
        "(() => { const b = document.querySelector('.u-over').getBoundingClientRect(); return [b.left, b.width, b.top + 40] })()",
    );
    let [left, width, top] = [0, 1, 2].map(|at| over[at].as_f64().expect("a number"));
    for shift in [3.0, 0.0] {
        let place = json!({"type": "mouseMoved", "x": left + width * share - shift, "y": top});
        page.call("Input.dispatchMouseEvent", place);
    }
    let texts =
        "[...document.querySelectorAll('.tip-mark')].map(mark => mark.textContent).join('|')";
    page.eval(texts).as_str().unwrap_or_default().to_owned()
}

/// Whether all charts have a line of a mark at a share of their width, above their own lines.
const HAS_LINE: &str = "share => [...document.querySelectorAll('.panel:not(.is-empty) canvas')].every(canvas => { \
    const over = canvas.closest('.uplot').querySelector('.u-over'); \
    const ratio = canvas.width / canvas.clientWidth; \
    const x = Math.round((over.offsetLeft + over.clientWidth * share) * ratio); \
    const y = Math.round((over.offsetTop + 2) * ratio); \
    const pixels = [...canvas.getContext('2d').getImageData(x - 3, y, 7, 1).data]; \
    return pixels.some((value, at) => at % 4 === 3 && value > 150); })";

#[test]
fn marks_and_phases_are_on_every_chart() {
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
    // The window stands still, so that marks keep their places.
    page.eval("location.hash = `#/node?span=60&to=${Date.now() - 3000}`");
    page.until("document.querySelectorAll('.panel:not(.is-empty) canvas').length >= 3");
    let end = page.eval("Number(new URLSearchParams(location.hash.split('?')[1]).get('to'))");
    let start = end.as_f64().expect("a time") - SPAN_MS;
    let at = |share: f64| (start + SPAN_MS * share).round().to_string();
    mark(&agent, &["checkpoint 12", "--time", &at(0.5)]);
    mark(&agent, &["--start", "assembly", "--time", &at(0.2)]);
    mark(&agent, &["--end", "assembly", "--time", &at(0.4)]);
    mark(&agent, &["--start", "solve", "--time", &at(0.7)]);
    page.until(&format!(
        "({HAS_LINE})(0.5) && ({HAS_LINE})(0.3) && !({HAS_LINE})(0.6)"
    ));
    let checkpoint = eventually("the text of the mark", || {
        let shown = marks_at(&mut page, 0.5);
        if shown.contains("checkpoint 12") {
            Ok(shown)
        } else {
            Err(shown)
        }
    });
    assert!(
        checkpoint.contains("pid") && !checkpoint.contains('|'),
        "{checkpoint}"
    );
    let phase = eventually("the text of the phase", || {
        let shown = marks_at(&mut page, 0.3);
        if shown.contains("assembly") {
            Ok(shown)
        } else {
            Err(shown)
        }
    });
    assert!(phase.starts_with("assembly (12"), "{phase}");
    assert_eq!(marks_at(&mut page, 0.6), "");
    assert!(marks_at(&mut page, 0.95).starts_with("solve (running)"));
    marks_at(&mut page, 0.5);
    let picture = screenshots().join("marks-light-1440.png");
    fs::write(picture, page.screenshot()).expect("written");
    // A mark that is set later appears by itself, and its text is not markup.
    mark(&agent, &["<b>late</b>", "--time", &at(0.6)]);
    eventually("the late mark", || {
        let shown = marks_at(&mut page, 0.6);
        if shown.contains("<b>late</b>") {
            Ok(())
        } else {
            Err(shown)
        }
    });
    // Chromium warns that this test, not the page, reads pixels back.
    let mut errors = page.console_errors();
    errors.retain(|error| !error.contains("willReadFrequently"));
    assert_eq!(errors, [""; 0]);
}
