//! The job worker on a simulated machine, with processes and lanes of its own.

use std::process::Command;
use std::sync::Arc;

use parking_lot::Mutex;
use pegel_jobs::{
    GpuSeconds, JobEnd, JobFilter, JobInterval, JobReport, JobReportError, JobWorker,
    JobWorkerOptions, Jobs, JobsSettings, LaneJob,
};
use pegel_metric::SystemClock;
use pegel_supervisor::Supervisor;
use pegel_testkit::{ChildProcess, JobCgroups, TempDir, eventually, now_millis};

type LaneJobs = Arc<Mutex<Vec<LaneJob>>>;

fn start(jobs: &Jobs, cgroups: &JobCgroups, lanes: &LaneJobs) -> JobWorker {
    start_worker(jobs, cgroups, lanes, false)
}

fn start_worker(jobs: &Jobs, cgroups: &JobCgroups, lanes: &LaneJobs, ends_jobs: bool) -> JobWorker {
    let lanes = lanes.clone();
    let options = JobWorkerOptions {
        cgroup_mount: cgroups.group(""),
        // The processes of these tests are real.
        proc: "/proc".into(),
        user_hz: 100,
        page_bytes: 4096,
        clock: Arc::new(SystemClock),
        lane_jobs: Arc::new(move || lanes.lock().clone()),
        gpu_seconds: GpuSeconds(Arc::new(|gpus, begin, end| {
            Some(gpus.len() as f64 * (end - begin) as f64)
        })),
        ends_jobs,
    };
    JobWorker::start(jobs, options, &Supervisor::default()).expect("started")
}

fn find(jobs: &Jobs, id: &str) -> Option<JobInterval> {
    let filter = JobFilter {
        id: Some(id.to_owned()),
        limit: 1,
        ..JobFilter::default()
    };
    jobs.list(&filter).0.pop()
}

fn wait_for(jobs: &Jobs, id: &str, is_meant: impl Fn(&JobInterval) -> bool) -> JobInterval {
    eventually(id, || {
        let found = find(jobs, id);
        let meant = found.clone().filter(&is_meant);
        meant.ok_or_else(|| format!("{found:?}"))
    })
}

fn report(job: &str, pid: u32) -> JobReport {
    JobReport {
        job: job.to_owned(),
        pid,
        end: false,
        is_last: false,
        exit: None,
        signal: None,
        cpu_seconds: None,
        memory_peak: None,
    }
}

#[test]
fn processes_that_a_user_reports_are_bounded() {
    let jobs = Jobs::in_memory(&JobsSettings::default());
    let stranger = 4_000_000_001;
    // No process has such a number: none of them is seen to end.
    let send = |uid: u32, name: &str, pid: u32| jobs.report(uid, &report(name, pid), now_millis());
    for number in 0..4_096 {
        let name = format!("job{}", number % 100);
        assert_eq!(send(stranger, &name, u32::MAX - number), Ok(()));
    }
    assert_eq!(send(stranger, "job0", 1), Err(JobReportError::Full));
    assert_eq!(
        send(stranger, "job100", u32::MAX),
        Err(JobReportError::Full)
    );
    assert_eq!(send(stranger, "job0", u32::MAX), Ok(()), "it is known");
    assert_eq!(send(0, "job0", 1), Ok(()));
}

#[test]
fn a_job_lasts_as_long_as_the_lanes_of_its_processes() {
    let (cgroups, dir, lanes) = (JobCgroups::v2(), TempDir::new(), LaneJobs::default());
    let jobs = Jobs::open(dir.path(), &JobsSettings::default());
    let own = rustix::process::geteuid().as_raw();
    let child = ChildProcess::start(Command::new("sleep").arg("1000"));
    let lane = LaneJob {
        job: "solver".to_owned(),
        uid: own,
        // The second process is not visible: it runs in another pid namespace.
        pids: vec![child.pid(), u32::MAX - 1],
    };
    lanes.lock().push(lane.clone());
    let worker = start(&jobs, &cgroups, &lanes);
    let running = wait_for(&jobs, "solver", |job| job.memory_peak.is_some());
    assert!(running.is_running() && running.cpus.is_some());
    assert_eq!((running.uid, &*running.scheduler), (Some(own), "pegel"));
    lanes.lock().clear();
    let ended = wait_for(&jobs, "solver", |job| !job.is_running());
    assert_eq!(ended.ended, Some(JobEnd::Ended));
    assert_eq!(jobs.counts().begun, 1, "it did not begin again");
    drop(worker);
    let again = Jobs::open(dir.path(), &JobsSettings::default());
    assert_eq!(find(&again, "solver"), Some(ended));
}

#[test]
fn the_jobs_of_programs_end_with_an_agent_that_ends_with_its_job() {
    let (cgroups, dir, lanes) = (JobCgroups::v2(), TempDir::new(), LaneJobs::default());
    let own = rustix::process::geteuid().as_raw();
    lanes.lock().push(LaneJob {
        job: "solver".to_owned(),
        uid: own,
        pids: vec![u32::MAX - 1],
    });
    for ends_jobs in [false, true] {
        let jobs = Jobs::open(dir.path(), &JobsSettings::default());
        let worker = start_worker(&jobs, &cgroups, &lanes, ends_jobs);
        wait_for(&jobs, "solver", JobInterval::is_running);
        drop(worker);
        let left = find(&jobs, "solver").expect("kept");
        assert_eq!(left.is_running(), !ends_jobs);
    }
    // The agent was killed: the job ends when it was last seen, for those who look later.
    let jobs = Jobs::in_memory(&JobsSettings::default());
    jobs.report(own, &report("mine", 1), 5_000).expect("begun");
    jobs.end_all_as_lost();
    let lost = find(&jobs, "mine").expect("kept");
    assert_eq!((lost.end, lost.ended), (Some(5_000), Some(JobEnd::Lost)));
}

#[test]
fn the_last_report_ends_a_job_of_which_other_processes_run() {
    let jobs = Jobs::in_memory(&JobsSettings::default());
    let now = now_millis();
    for pid in [1, 2] {
        jobs.report(7, &report("mpi", pid), now - 2_000)
            .expect("begun");
    }
    let last = JobReport {
        end: true,
        is_last: true,
        exit: Some(0),
        ..report("mpi", 1)
    };
    jobs.report(7, &last, now).expect("ended");
    // Its lanes still exist for a moment.
    let (cgroups, lanes) = (JobCgroups::v2(), LaneJobs::default());
    for (job, uid) in [("mpi", 7), ("next", 8)] {
        lanes.lock().push(LaneJob {
            job: job.to_owned(),
            uid,
            pids: vec![u32::MAX - 1],
        });
    }
    let _worker = start(&jobs, &cgroups, &lanes);
    wait_for(&jobs, "next", JobInterval::is_running);
    let ended = find(&jobs, "mpi").expect("kept");
    assert_eq!((ended.end, ended.ended), (Some(now), Some(JobEnd::Exit(0))));
}

#[test]
fn a_reported_job_ends_with_its_process_if_no_end_is_reported() {
    let (cgroups, dir, lanes) = (JobCgroups::v2(), TempDir::new(), LaneJobs::default());
    let jobs = Jobs::open(dir.path(), &JobsSettings::default());
    let own = rustix::process::geteuid().as_raw();
    let _worker = start(&jobs, &cgroups, &lanes);
    let child = ChildProcess::start(Command::new("sleep").arg("1000"));
    jobs.report(own, &report("mine", child.pid()), now_millis())
        .expect("accepted");
    // Seen at least once, so that its end is noticed.
    wait_for(&jobs, "mine", |job| job.memory_peak.is_some());
    child.kill();
    let ended = wait_for(&jobs, "mine", |job| !job.is_running());
    assert_eq!(ended.ended, Some(JobEnd::Ended));
    for (job, pid) in [("", 1), ("a\nb", 1), (&*"x".repeat(257), 1)] {
        assert!(jobs.report(own, &report(job, pid), 0).is_err(), "{job:?}");
    }
    let mut strange = report("mine", 1);
    strange.cpu_seconds = Some(f64::NAN);
    assert!(jobs.report(own, &strange, 0).is_err());
}

#[test]
fn the_ranks_of_a_job_are_one_job_whose_first_failure_counts() {
    let jobs = Jobs::in_memory(&JobsSettings::default());
    for pid in [1, 2] {
        jobs.report(7, &report("mpi", pid), 1_000)
            .expect("accepted");
    }
    for (pid, exit) in [(1, 3), (2, 0)] {
        let ended = JobReport {
            end: true,
            exit: Some(exit),
            cpu_seconds: Some(1.5),
            memory_peak: Some(100),
            ..report("mpi", pid)
        };
        jobs.report(7, &ended, 2_000).expect("accepted");
    }
    let job = find(&jobs, "mpi").expect("one job");
    assert_eq!((job.begin, job.end), (1_000, Some(2_000)));
    assert_eq!(
        (job.ended, job.cpu_seconds),
        (Some(JobEnd::Exit(3)), Some(3.0))
    );
    assert_eq!((job.memory_peak, jobs.counts().begun), (Some(200), 1));
    // Another user's job of the same name is another job.
    jobs.report(8, &report("mpi", 1), 3_000).expect("accepted");
    assert_eq!(jobs.counts().begun, 2);
}

#[test]
fn a_job_with_a_cgroup_is_not_recorded_twice() {
    let (cgroups, dir, lanes) = (JobCgroups::v1(), TempDir::new(), LaneJobs::default());
    let own = rustix::process::geteuid().as_raw();
    cgroups.begin(&format!("memory/slurm/uid_{own}/job_7"), &[]);
    cgroups.begin(&format!("memory/slurm/uid_{}/job_8", own + 1), &[]);
    let jobs = Jobs::open(dir.path(), &JobsSettings::default());
    for job in ["7", "8", "9"] {
        lanes.lock().push(LaneJob {
            job: job.to_owned(),
            uid: own,
            pids: vec![std::process::id()],
        });
    }
    let _worker = start(&jobs, &cgroups, &lanes);
    wait_for(&jobs, "9", |job| job.memory_peak.is_some());
    let filter = JobFilter {
        limit: 100,
        ..JobFilter::default()
    };
    let (found, _) = jobs.list(&filter);
    let mut found: Vec<(String, String)> = { found.iter() }
        .map(|job| (job.job.to_string(), job.scheduler.to_string()))
        .collect();
    found.sort_unstable();
    let row = |job: &str, scheduler: &str| (job.to_owned(), scheduler.to_owned());
    // Job 8 belongs to another user: the program only claims the id.
    let expected = [
        row("7", "slurm"),
        row("8", "pegel"),
        row("8", "slurm"),
        row("9", "pegel"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_busy_time_of_gpus_is_added_at_the_end() {
    let (cgroups, dir, lanes) = (JobCgroups::v1(), TempDir::new(), LaneJobs::default());
    let jobs = Jobs::open(dir.path(), &JobsSettings::default());
    let group = "slurm/uid_1/job_7";
    std::fs::create_dir(cgroups.group("devices")).expect("made");
    cgroups.begin(
        &format!("devices/{group}"),
        &[("devices.list", "c 195:0 rw\nc 195:3 rw\n")],
    );
    let _worker = start(&jobs, &cgroups, &lanes);
    wait_for(&jobs, "7", |job| {
        job.gpus.as_ref().is_some_and(|gpus| gpus.len() == 2)
    });
    cgroups.end("devices/slurm");
    let ended = wait_for(&jobs, "7", |job| !job.is_running());
    let millis = (ended.end.expect("ended") - ended.begin) as f64;
    assert_eq!(ended.gpu_seconds, Some(2.0 * millis));
}
