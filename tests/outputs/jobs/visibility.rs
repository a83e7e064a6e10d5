//! Which jobs a user sees.

use pegel_testkit::{JobCgroups, OtherUser, TempDir, eventually};
use serde_json::Value;

use super::{agent_on, job_in_state};

/// Returns the status of a request as another user, and the JSON of the response.
fn ask(other_user: OtherUser, url: &str) -> (u16, Value) {
    let (status, output) = other_user.curl(&[url]);
    let body = output.split("\r\n\r\n").nth(1).unwrap_or_default();
    let end = body.rfind('}').map_or(0, |end| end + 1);
    (
        status,
        serde_json::from_str(&body[..end]).unwrap_or(Value::Null),
    )
}

fn ids(found: &Value) -> Vec<&str> {
    let jobs = found["jobs"].as_array().expect("jobs").iter();
    jobs.map(|job| job["job"].as_str().expect("an id"))
        .collect()
}

#[test]
fn users_see_their_own_jobs_and_operators_all() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let cgroups = JobCgroups::v1();
    cgroups.begin("memory/slurm/uid_0/job_1", &[]);
    cgroups.begin(&format!("memory/slurm/uid_{}/job_2", OtherUser::UID), &[]);
    for (setting, expected) in [("allow_users", &["2"][..]), ("operators", &["2", "1"])] {
        let dir = TempDir::new();
        let config = format!("{setting}: [{}]\n", OtherUser::NAME);
        let agent = agent_on(&cgroups, &dir, &config);
        job_in_state(&agent, "1", "running");
        job_in_state(&agent, "2", "running");
        let base = format!("http://{}/api/v1", agent.http());
        let mut found = ids(&ask(other_user, &format!("{base}/jobs")).1)
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>();
        found.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(found, expected, "{setting}");
        let of_root = ask(other_user, &format!("{base}/jobs?user=root")).1;
        assert_eq!(ids(&of_root).is_empty(), setting == "allow_users");
        eventually("a value is stored", || {
            let (status, found) = ask(other_user, &format!("{base}/range?job=2"));
            (status == 200).then_some(()).ok_or(found)
        });
        let (status, found) = ask(other_user, &format!("{base}/range?job=1"));
        let expected = if setting == "operators" { 200 } else { 404 };
        assert_eq!(status, expected, "{setting}: {found}");
    }
}

#[test]
fn strangers_see_no_jobs() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let (cgroups, dir) = (JobCgroups::v1(), TempDir::new());
    cgroups.begin(&format!("memory/slurm/uid_{}/job_2", OtherUser::UID), &[]);
    let agent = agent_on(&cgroups, &dir, "");
    job_in_state(&agent, "2", "running");
    let (status, _) = ask(other_user, &format!("http://{}/api/v1/jobs", agent.http()));
    assert_eq!(status, 401);
}
