//! The view of processes.

use pegel_testkit::{BrowserPage, need};

use super::{agent, url};

/// The texts of a column of the table, by the beginning of its title.
fn column(title: &str) -> String {
    format!(
        "(() => {{ const table = document.querySelector('.processes table'); \
         const at = [...table.tHead.rows[0].cells].findIndex(cell => cell.textContent.startsWith('{title}')); \
         return [...table.tBodies[0].rows].map(row => row.cells[at]?.textContent ?? ''); }})()"
    )
}

#[test]
fn processes_are_listed_sorted_and_grouped() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let agent = agent();
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 900);
    page.before_all(include_str!("processes.js"));
    page.open(&format!("{}#/processes", url(&agent)));
    page.until_live();
    page.until("document.querySelectorAll('.processes tbody tr').length === 3");
    assert_eq!(
        page.eval(&format!("{}.join()", column("CPU"))),
        "250 %,50 %,0 %"
    );
    // The command line is shown where the agent gives it; what the agent may not read is a dash.
    assert_eq!(
        page.eval("document.querySelector('.processes .command').textContent"),
        "/usr/bin/python3 train.py --token=****"
    );
    assert_eq!(
        page.eval(&format!("{}.join()", column("write"))),
        "2 MiB/s,–,0"
    );
    // A title is a button that sorts; the order is part of the URL.
    page.eval("[...document.querySelectorAll('.processes .order')].find(each => each.textContent === 'memory').click()");
    page.until(&format!(
        "{}.join() === '4 GiB,1 GiB,16 MiB'",
        column("memory")
    ));
    page.until("location.hash.includes('sort=memory')");
    assert_eq!(
        page.eval("document.querySelector('.processes th[aria-sort]').textContent"),
        "memory ▾"
    );
    // Sums by user.
    page.eval("document.querySelector('[data-by=user]').click()");
    page.until(&format!("{}.join() === 'alice,root'", column("user")));
    assert_eq!(page.eval(&format!("{}.join()", column("processes"))), "2,1");
    page.until("location.hash.includes('by=user')");
    // Without the collector, the message of the agent names the setting.
    page.eval("document.querySelector('[data-by=job]').click()");
    page.until(
        "document.querySelector('.processes').textContent.includes('collectors.top_processes')",
    );
}
