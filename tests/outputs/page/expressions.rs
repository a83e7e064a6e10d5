//! PromQL on the page: the expression box with its completion, and alerts above every view.

use std::fs;

use pegel_testkit::{BrowserPage, TempDir, need};

use super::{agent, screenshots, url};
use crate::PEGEL;

/// The candidates that are shown.
const CANDIDATES: &str =
    "[...document.querySelectorAll('.completion li')].map(each => each.textContent)";

#[test]
fn an_expression_is_completed_and_becomes_a_chart() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 900);
    page.open(&format!("{}#/metrics?span=60", url(&agent)));
    page.until_live();
    page.until("!!document.getElementById('expression')");
    page.eval("document.getElementById('expression').focus()");
    // A name of a metric, then a label, then its value, then a function around it.
    page.type_text("node_cpu_sec");
    page.until(&format!("{CANDIDATES}.includes('node_cpu_seconds_total')"));
    page.press("Tab");
    page.until("document.getElementById('expression').value === 'node_cpu_seconds_total'");
    page.type_text("{mo");
    page.until(&format!("{CANDIDATES}[0] === 'mode'"));
    page.press("Tab");
    page.type_text("=\"us");
    page.until(&format!("{CANDIDATES}.includes('user')"));
    let picture = screenshots().join("completion-light-1440.png");
    fs::write(picture, page.screenshot()).expect("written");
    page.press("ArrowDown");
    page.press("Enter");
    page.until(
        "document.getElementById('expression').value === 'node_cpu_seconds_total{mode=\"user'",
    );
    page.eval("document.getElementById('expression').value = ''");
    page.type_text("histogram_q");
    page.until(&format!("{CANDIDATES}[0] === 'histogram_quantile'"));
    page.press("Escape");
    page.until(&format!("{CANDIDATES}.length === 0"));
    let expression = "count by (mode) (node_cpu_seconds_total)";
    page.eval(&format!(
        "document.getElementById('expression').value = '{expression}'; document.querySelector('.expression').requestSubmit()"
    ));
    page.until("document.querySelectorAll('.panel .legend .name').length >= 8");
    page.until("[...document.querySelectorAll('.panel .legend .name')].some(each => each.textContent === 'mode=idle')");
    // The address keeps the expression.
    page.until("location.hash.includes('promql%3D1%7Ccount')");
    let address = page.eval("location.href");
    page.open(address.as_str().expect("a URL"));
    page.until("document.querySelectorAll('.panel .legend .name').length >= 8");
    let picture = screenshots().join("expression-light-1440.png");
    fs::write(picture, page.screenshot()).expect("written");
    assert_eq!(page.console_errors(), [""; 0]);
    page.eval("document.getElementById('expression').value = 'sum('; document.querySelector('.expression').requestSubmit()");
    page.until("[...document.querySelectorAll('.panel .message')].some(each => each.textContent.includes('parse error'))");
}

#[test]
fn alerts_are_shown_above_every_view() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let home = TempDir::new();
    let rules = home.join("rules.yml");
    fs::write(
        &rules,
        "groups:\n  - name: test\n    interval: 1s\n    rules:\n      - alert: Fires\n        expr: vector(7) > 5\n        \
         annotations: {summary: 'the value is {{ $value }}'}\n      - alert: Waits\n        expr: vector(1)\n        for: 1h\n",
    )
    .expect("written");
    let agent = PEGEL
        .agent()
        .config(&format!("rules: [\"{}\"]\n", rules.display()))
        .start();
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 900);
    page.open(&url(&agent));
    page.until_live();
    let alerts = "document.getElementById('alerts').textContent";
    page.until(&format!(
        "{alerts}.includes('Alerts: 1 firing, 1 pending') && {alerts}.includes('Fires the value is 7')"
    ));
    let picture = screenshots().join("alerts-light-1440.png");
    fs::write(picture, page.screenshot()).expect("written");
    assert_eq!(page.console_errors(), [""; 0]);
}
