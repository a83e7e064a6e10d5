//! The view of jobs.

use pegel_testkit::{BrowserPage, JobCgroups, TempDir, need};

use super::url;
use crate::jobs::{agent_on, job_in_state};

#[test]
fn a_click_on_a_job_shows_the_charts_of_its_time_and_cpus() {
    let Some(chromium) = need("chromium") else {
        return;
    };
    let (cgroups, dir) = (JobCgroups::v2(), TempDir::new());
    let agent = agent_on(&cgroups, &dir, "");
    let group = format!("{}/job_17", JobCgroups::SLURM);
    cgroups.begin(&group, &[("cpuset.cpus.effective", "1-2\n")]);
    job_in_state(&agent, "17", "running");
    let mut page = BrowserPage::start(&chromium);
    page.size(1440, 900);
    page.open(&format!("{}#/jobs", url(&agent)));
    page.until("document.querySelector('main tbody')?.textContent.includes('running')");
    cgroups.end(&group);
    page.until("document.querySelector('main tbody').textContent.includes('ended')");
    page.eval("document.querySelector('main tbody a').click()");
    page.until("location.hash.startsWith('#/node') && location.hash.includes('job=17')");
    page.until("document.querySelector('main .notice').textContent.includes('Only job 17')");
    let asked = "performance.getEntriesByType('resource').map(each => each.name)";
    page.until(&format!(
        "{asked}.some(name => name.includes('api/v1/range') && name.includes('job=17'))"
    ));
    page.eval("document.querySelector('main .notice a').click()");
    page.until("!document.querySelector('main .notice')");
    assert_eq!(page.console_errors(), [""; 0]);
}
