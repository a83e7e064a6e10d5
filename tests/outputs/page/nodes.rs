//! The view of the nodes below a parent.

use std::fs;

use pegel_testkit::{AgentProcess, BrowserPage, eventually, need};
use serde_json::Value;

use super::{PEGEL, PREFIX, PrefixProxy, agent, screenshots, url};

const MANY_NODES: &str = include_str!("many_nodes.js");

const TILES: &str = "document.querySelectorAll('.tiles .tile').length";
const TEXT: &str = "document.querySelector('main').innerText";

fn nodes_page(agent: &AgentProcess, chromium: &std::path::Path, state: &str) -> BrowserPage {
    let mut page = BrowserPage::start(chromium);
    page.size(1440, 900);
    page.before_all(MANY_NODES);
    page.open(&format!("{}{state}", url(agent)));
    page
}

#[test]
fn two_thousand_nodes_are_shown_sorted_filtered_and_marked() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let mut page = nodes_page(&agent, &chromium, "");
    // It is the first view of a parent.
    page.until(&format!("{TILES} === 2000"));
    assert_eq!(
        page.eval("document.querySelector('#views a').textContent"),
        "Nodes"
    );
    let counts = "[...document.querySelectorAll('.node-counts button')].map(each => each.textContent).join()";
    assert_eq!(
        page.eval(counts),
        "2 000 nodes,1 990 up,4 late,4 lost,2 refused,5 standing out"
    );
    page.until(&format!(
        "{TEXT}.includes('1 990 of 2 000 nodes answered. Without: nid000005 (late), nid000007 (lost), nid000009 (refused)')"
    ));
    // States and outliers differ in more than their colour.
    let tile = |node: &str| format!("document.querySelector('[data-node={node}]')");
    for (node, mark) in [("nid000005", "…"), ("nid000007", "×"), ("nid000009", "⊘")] {
        assert_eq!(page.eval(&format!("{}.dataset.mark", tile(node))), mark);
    }
    let border = format!("getComputedStyle({}).borderTopWidth", tile("nid000002"));
    assert_eq!(page.eval(&border), "2px");
    // A node that cannot be reached is not a link.
    assert_eq!(
        page.eval(&format!("{}.hasAttribute('href')", tile("nid000007"))),
        false
    );

    let first = |count: u32| {
        format!(
            "[...document.querySelectorAll('.tiles .tile')].slice(0, {count}).map(tile => tile.dataset.node).join()"
        )
    };
    let sort = |by: &str| {
        format!(
            "(() => {{ const sort = document.querySelector('.node-tools select'); sort.value = '{by}'; \
             sort.dispatchEvent(new Event('change')); }})()"
        )
    };
    page.eval("document.querySelector('[data-figure=network]').click()");
    page.eval(&sort("value"));
    page.until(&format!("{} === 'nid001999,nid001998'", first(2)));
    page.until("location.hash.includes('figure=network') && location.hash.includes('sort=value')");
    page.eval(&sort("state"));
    page.until(&format!("{} === 'nid000009,nid001009,nid000007'", first(3)));
    let filter = |text: &str| {
        format!(
            "(() => {{ const filter = document.getElementById('node-filter'); filter.value = '{text}'; \
             filter.dispatchEvent(new Event('input')); }})()"
        )
    };
    for (text, count) in [
        ("lost", 4),
        ("nid00012", 10),
        ("nid0005 late", 1),
        ("nothing", 0),
    ] {
        page.eval(&filter(text));
        page.until(&format!("{TILES} === {count}"));
    }
    page.until(&format!("{TEXT}.includes('No node matches the filter.')"));
    page.eval("document.querySelector('[data-count=\"standing out\"]').click()");
    page.until(&format!("{TILES} === 5"));
    page.until("location.hash.includes('filter=standing+out')");

    // The state is in the URL.
    let address = page.eval("location.href");
    page.open(address.as_str().expect("text"));
    page.until(&format!("{TILES} === 5"));
    assert_eq!(page.eval("window.openMax"), 1, "one request at a time");
    assert_eq!(page.console_errors(), [""; 0]);
}

#[test]
fn tiles_are_reached_by_keyboard_and_say_what_they_show() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let mut page = nodes_page(&agent, &chromium, "#/nodes?sort=state");
    page.until(&format!("{TILES} === 2000"));
    // One tile is in the tab order, and arrow keys go to the others.
    assert_eq!(
        page.eval("document.querySelectorAll('.tiles [tabindex=\"0\"]').length"),
        1
    );
    page.eval("document.querySelector('.tiles [tabindex=\"0\"]').focus()");
    page.press("ArrowRight");
    page.until("document.activeElement.dataset.node === 'nid001009'");
    let tip = "document.querySelector('.node-tip')";
    page.until(&format!(
        "!{tip}.hidden && {tip}.textContent.includes('<b>duplicate</b> name')"
    ));
    let label = "document.activeElement.getAttribute('aria-label')";
    let label = page.eval(label);
    let label = label.as_str().expect("a label");
    for part in [
        "nid001009",
        "state refused",
        "median",
        "lag 12 ms",
        "clock +3 ms",
        "parent head1",
    ] {
        assert!(label.contains(part), "{part}: {label}");
    }
    // The arrow key did not move in time.
    assert_eq!(page.eval("location.hash.includes('to=')"), false);
    assert_eq!(page.console_errors(), [""; 0]);
}

#[test]
fn any_metric_colours_the_nodes() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let mut page = nodes_page(&agent, &chromium, "");
    page.until(&format!("{TILES} === 2000"));
    page.eval("document.getElementById('node-metric').focus()");
    page.type_text("node_context_sw");
    page.until(
        "document.querySelector('.completion li')?.textContent === 'node_context_switches_total'",
    );
    page.press("ArrowDown");
    page.press("Enter");
    page.press("Enter");
    page.until("location.hash.includes('metric=node_context_switches_total')");
    // A counter is shown as its increase per second: half of the number of the node, because the
    // page asks every two seconds.
    page.eval(
        "(() => { const sort = document.querySelector('.node-tools select'); sort.value = 'value'; \
         sort.dispatchEvent(new Event('change')); })()",
    );
    page.until("document.querySelector('.node-legend').textContent.includes('1 k/s')");
    page.until("document.querySelector('.tiles .tile').dataset.node === 'nid001999'");
    assert_eq!(page.console_errors(), [""; 0]);
}

#[test]
fn an_update_of_two_thousand_nodes_keeps_the_page_fluent() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let mut page = nodes_page(&agent, &chromium, "");
    page.until(&format!("{TILES} === 2000"));
    // The colours are on one canvas: an update changes no element.
    let changed = page.eval(
        "(async () => { let count = 0; const seen = new MutationObserver(list => (count += list.length)); \
         seen.observe(document.querySelector('.tiles'), { subtree: true, attributes: true, childList: true }); \
         const until = window.asked + 2; \
         while (window.asked < until) await new Promise(requestAnimationFrame); \
         await new Promise(done => setTimeout(done, 100)); return count; })()",
    );
    assert!(
        changed.as_u64().is_some_and(|count| count < 100),
        "{changed}"
    );
    // Nothing is asked for while the page is hidden.
    page.eval(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true}); \
         document.dispatchEvent(new Event('visibilitychange'))",
    );
    page.eval("new Promise(done => setTimeout(done, 2500))");
    let before = page.eval("window.asked");
    page.eval("new Promise(done => setTimeout(done, 4500))");
    assert_eq!(page.eval("window.asked"), before);
    page.eval(
        "Object.defineProperty(document, 'hidden', {value: false, configurable: true}); \
         document.dispatchEvent(new Event('visibilitychange'))",
    );
    page.until(&format!("window.asked > {before}"));
    assert_eq!(page.console_errors(), [""; 0]);
}

#[test]
fn the_nodes_are_readable_in_both_themes_and_at_every_width() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    for count in [8, 200, 2000] {
        let mut page = BrowserPage::start(&chromium);
        page.before_all(&format!("window.nodeCount = {count}"));
        page.before_all(MANY_NODES);
        for (scheme, width, height) in [
            ("light", 1440, 900),
            ("dark", 1440, 900),
            ("light", 390, 844),
        ] {
            page.prefer(scheme);
            page.size(width, height);
            page.open(&format!("{}#/nodes", url(&agent)));
            page.until(&format!("{TILES} === {count}"));
            let poor = page.eval(include_str!("contrast.js"));
            let place = format!("{count}, {scheme}, {width}");
            assert_eq!(poor, Value::Array(Vec::new()), "{place}");
            let poor = page.eval(include_str!("layout.js"));
            assert_eq!(poor, Value::Array(Vec::new()), "{place}");
            let wide = page.eval("document.documentElement.scrollWidth");
            assert!(
                wide.as_u64().is_some_and(|wide| wide <= u64::from(width)),
                "{place}: {wide}"
            );
            let picture = screenshots().join(format!("nodes-{count}-{scheme}-{width}.png"));
            fs::write(picture, page.screenshot()).expect("written");
        }
        assert_eq!(page.console_errors(), [""; 0]);
    }
}

/// Returns a parent and the agents below it.
fn tree() -> (AgentProcess, Vec<AgentProcess>) {
    let parent = PEGEL
        .agent()
        .args(&["--node", "head1", "--accept", "127.0.0.1:0"])
        .start();
    let accepts = eventually("the parent accepts children", || {
        let tree = parent.get("/api/v1/tree").json();
        tree["accepts"].as_str().map(str::to_owned).ok_or(tree)
    });
    let children = ["n1", "n2", "n3"].map(|node| {
        PEGEL
            .agent()
            .args(&["--node", node, "--parent", &accepts])
            .start()
    });
    (parent, children.into())
}

#[test]
fn a_parent_shows_its_nodes_and_opens_their_pages_behind_a_prefix() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let (parent, children) = tree();
    let proxy = PrefixProxy::start(parent.http().to_string());
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 900);
    page.open(&format!("http://{}{PREFIX}/", proxy.address));
    page.until(&format!("{TILES} === 4"));
    page.until("[...document.querySelectorAll('.tile-value')].every(value => value.textContent.includes('%'))");
    page.until(&format!("{TEXT}.includes('4 of 4 nodes answered.')"));
    // The other views show the parent itself.
    page.press("2");
    page.until_live();
    page.until("document.querySelectorAll('.card .bar').length >= 6");
    page.press("5");
    page.until(&format!("{TEXT}.includes('No program has sent metrics.')"));
    page.press("1");
    page.until(&format!("{TILES} === 4"));
    page.eval("document.querySelector('[data-node=n2]').focus()");
    page.press("Enter");
    page.until(&format!("location.pathname === '{PREFIX}/nodes/n2/'"));
    page.until_live();
    page.until("document.getElementById('node').textContent === 'n2'");
    page.until("document.querySelectorAll('.card .bar').length >= 6");
    page.until("!document.getElementById('parent').hidden");
    page.eval("document.getElementById('parent').click()");
    page.until(&format!("{TILES} === 4"));
    assert_eq!(page.console_errors(), [""; 0]);
    assert_eq!(*proxy.unprefixed_paths.lock(), [""; 0]);
    for child in children {
        child.stop();
    }
    page.until("document.querySelectorAll('.tiles .tile:is(.is-lost, .is-late)').length === 3");
    parent.assert_conserved();
}
