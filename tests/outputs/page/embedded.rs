//! Charts in a frame of a notebook: `pegel.show` of the Python package.

use std::fs;

use pegel_testkit::{BrowserPage, FakeReply, FakeService, need};
use serde_json::json;

use super::{agent, screenshots, url};

const STATE: &str = "#/metrics?chart=node_load1&span=300&embedded=1";

#[test]
fn a_notebook_on_this_machine_shows_charts_in_a_frame() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let page_url = format!("{}{STATE}", url(&agent));
    let notebook = FakeService::start();
    let frame = format!(
        "<!doctype html><html><link rel=\"icon\" href=\"data:,\"><iframe src=\"{page_url}\" width=\"100%\" height=\"400\"></iframe></html>"
    );
    notebook.set("GET /", None, FakeReply::ok(frame));
    let mut page = BrowserPage::start(&chromium);
    page.size(1000, 500);
    page.open(&format!("{}/", notebook.url));
    // A frame that the content security policy forbids has the address of an error page.
    page.until("document.readyState === 'complete'");
    let tree = page.call("Page.getFrameTree", json!({}));
    let shown = &tree["frameTree"]["childFrames"][0]["frame"]["url"];
    assert_eq!(shown.as_str(), Some(url(&agent).as_str()), "{tree}");

    page.open(&page_url);
    page.until_live();
    page.until("document.querySelectorAll('.panel canvas').length === 1");
    let hidden = "[...document.querySelectorAll('.top, .finder, .expression, .pair')]";
    page.until(&format!("{hidden}.length === 4"));
    page.until(&format!("{hidden}.every(part => !part.checkVisibility())"));
    let picture = screenshots().join("embedded-light-1000.png");
    fs::write(picture, page.screenshot()).expect("written");
    assert_eq!(page.console_errors(), [""; 0]);
}
