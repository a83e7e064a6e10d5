//! Tests of job detection: every scheduler by its variables and by its cgroup.

use super::*;

fn job(variables: &[(&str, &str)], cgroup: &str) -> Option<Job> {
    let environment = |name: &str| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    detect_job(&environment, cgroup)
}

/// Formats the job as scheduler, id and all other known fields: `slurm 7 step=0 rank=3`.
fn job_text(variables: &[(&str, &str)], cgroup: &str) -> Option<String> {
    let job = job(variables, cgroup)?;
    let json = serde_json::to_value(&job).expect("JSON");
    let fields = json.as_object().expect("an object").iter();
    let fields = fields.filter(|(key, value)| {
        !value.is_null() && !["scheduler", "id", "from"].contains(&key.as_str())
    });
    let mut text = format!("{} {}", job.scheduler, job.id);
    for (key, value) in fields {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        text.push_str(&format!(" {key}={value}"));
    }
    Some(text)
}

type VariableCases = &'static [(&'static [(&'static str, &'static str)], &'static str)];

fn check(cases: VariableCases) {
    for (variables, expected) in cases {
        assert_eq!(job_text(variables, "").as_deref(), Some(*expected));
    }
}

#[test]
fn cluster_schedulers_are_detected_by_their_variables() {
    check(&[
        (
            &[
                ("SLURM_JOB_ID", "4711"),
                ("SLURM_STEP_ID", "0"),
                ("SLURM_JOB_NAME", "cfd"),
                ("SLURM_PROCID", "3"),
                ("SLURM_LOCALID", "1"),
                ("SLURM_JOB_NUM_NODES", "2"),
                ("SLURM_ARRAY_JOB_ID", "4700"),
                ("SLURM_ARRAY_TASK_ID", "11"),
                ("SLURM_RESTART_COUNT", "1"),
                ("SLURM_CLUSTER_NAME", "alps"),
            ],
            "slurm 4711 array_id=4700 array_index=11 attempt=1 cluster=alps local_rank=1 name=cfd \
             nodes=2 rank=3 step=0",
        ),
        (
            &[
                ("SLURM_JOB_ID", "18"),
                ("SLURM_JOB_SLUID", "s06JQ5T8XK2M9R"),
            ],
            "slurm 18 sluid=s06JQ5T8XK2M9R",
        ),
        (
            &[("PBS_JOBID", "12[3].server"), ("PBS_QUEUE", "long")],
            "pbs 12[3].server array_index=3 queue=long",
        ),
        (&[("LSB_JOBID", "7"), ("LSB_JOBINDEX", "0")], "lsf 7"),
        (
            &[
                ("FLUX_JOB_ID", "ƒA4VyMGLF"),
                ("SLURM_JOB_ID", "1"),
                ("FLUX_TASK_RANK", "0"),
            ],
            "flux ƒA4VyMGLF rank=0",
        ),
        (
            &[("COBALT_JOBID", "5"), ("PALS_RANKID", "9")],
            "cobalt 5 rank=9",
        ),
        (
            &[
                ("JOB_ID", "8"),
                ("SGE_TASK_ID", "undefined"),
                ("JOB_NAME", "x"),
            ],
            "grid-engine 8 name=x",
        ),
    ]);
}

#[test]
fn cloud_schedulers_are_detected_by_their_variables() {
    check(&[
        (
            &[
                ("AWS_BATCH_JOB_ID", "a-b"),
                ("AWS_BATCH_JOB_ATTEMPT", "2"),
                ("AWS_BATCH_JQ_NAME", "q"),
            ],
            "aws-batch a-b attempt=2 queue=q",
        ),
        (
            &[("BATCH_JOB_UID", "u"), ("BATCH_TASK_INDEX", "4")],
            "google-batch u array_index=4",
        ),
        (
            &[
                ("AZ_BATCH_JOB_ID", "j"),
                ("AZ_BATCH_TASK_ID", "t"),
                ("AZ_BATCH_POOL_ID", "p"),
            ],
            "azure-batch j queue=p task=t",
        ),
        (
            &[
                ("TES_TASK_NAME", "0fb_1"),
                ("AZ_BATCH_JOB_ID", "j"),
                ("AZ_BATCH_POOL_ID", "p"),
            ],
            "tes 0fb_1 queue=p",
        ),
        (
            &[
                ("POD_NAME", "worker-0"),
                ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
            ],
            "kubernetes worker-0 name=worker-0",
        ),
        (
            &[("PEGEL_JOB", "mine"), ("SLURM_JOB_ID", "1")],
            "pegel mine",
        ),
    ]);
}

#[test]
fn schedulers_are_detected_by_their_cgroups() {
    for (path, expected) in [
        (
            "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_3",
            "slurm 7 step=0 task=3",
        ),
        (
            "0::/system.slice/nid1_slurmstepd.scope/job_7/step_batch/user/task_0",
            "slurm 7 step=batch task=0",
        ),
        (
            "4:memory:/slurm_nid1/uid_1000/job_7/step_extern",
            "slurm 7 step=extern",
        ),
        (
            "0::/system.slice/nid1_slurmstepd.scope/s06JQ5T8XK2M9R/step_0/user/task_3",
            "slurm s06JQ5T8XK2M9R sluid=s06JQ5T8XK2M9R step=0 task=3",
        ),
        (
            "5:cpuset:/pbs_jobs.service/jobid/12.server",
            "pbs 12.server",
        ),
        (
            "0::/pbs_jobs.service/jobs/12[3].server",
            "pbs 12[3].server array_index=3",
        ),
        (
            "3:memory:/lsf/alps/job.7.4711.1700000000",
            "lsf 7 cluster=alps",
        ),
        (
            "0::/user.slice/user-500.slice/user@500.service/app.slice/imp-shell-0-fA4VyMGLF.service",
            "flux fA4VyMGLF",
        ),
        (
            "0::/user.slice/user-500.slice/user@500.service/shell-12-f1.service",
            "flux f1",
        ),
        (
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a_2b.slice/cri-containerd-9.scope",
            "kubernetes 1a-2b",
        ),
        (
            "0::/kubepods.slice/kubepods-pod1a_2b.slice/crio-9.scope",
            "kubernetes 1a-2b",
        ),
        (
            "4:memory:/kubepods/besteffort/pod1a-2b/9",
            "kubernetes 1a-2b",
        ),
        ("4:memory:/ecs/task1/container", "ecs task1"),
        (
            "0::/htcondor/condor_execute_slot1_1@host",
            "htcondor slot1_1@host",
        ),
    ] {
        let text = format!("9:name=systemd:/\n{path}\n");
        assert_eq!(job_text(&[], &text).as_deref(), Some(expected), "{path}");
    }
}

#[test]
fn other_cgroups_and_variables_are_not_jobs() {
    for path in [
        "",
        "0::/",
        "0::/user.slice/user-1000.slice/session-1.scope",
        "0::/system.slice/slurmd.service",
        "0::/docker/0123",
        "0::/user.slice/user-500.slice/user@500.service/app.slice/shell-x-f1.service",
        "0::/system.slice/shell-0-f1.service",
        "nonsense",
        "0::/lsf/alps/job.x.1",
        "0::/ecs/task1",
        "0::/system.slice/slurmstepd.scope/system",
        "0::/system.slice/slurmstepd.scope/s06JQ5T8XK2M9U/step_0",
        "0::/user.slice/s06JQ5T8XK2M9R/step_0",
    ] {
        assert_eq!(job(&[], path), None, "{path}");
    }
    assert_eq!(job(&[("JOB_ID", "8")], ""), None, "the name is too generic");
    assert_eq!(job(&[("SLURM_JOB_ID", "")], ""), None);
}

#[test]
fn the_environment_takes_precedence_and_is_bounded() {
    let found = job(&[("SLURM_JOB_ID", "8")], "0::/slurm/uid_1/job_7").expect("a job");
    assert_eq!((found.id.as_str(), found.from), ("8", "environment"));
    let long = format!("\u{1b}[2J{}", "x".repeat(10_000));
    let found = job(&[("SLURM_JOB_ID", &long)], "").expect("a job");
    assert_eq!(found.id.chars().count(), 256);
    assert!(!found.id.contains('\u{1b}'));
    let found = job(
        &[
            ("SLURM_JOB_ID", "1"),
            ("SLURM_PROCID", "x"),
            ("PMI_RANK", "5"),
        ],
        "",
    );
    assert_eq!(found.expect("a job").rank, Some(5));
}

#[test]
#[rustfmt::skip]
fn the_cgroup_of_a_job_is_a_prefix_of_the_path() {
    for (path, expected) in [
        ("/system.slice/n1_slurmstepd.scope/job_7/step_0/user/task_3", Some("/system.slice/n1_slurmstepd.scope/job_7")),
        ("/system.slice/slurmstepd.scope/s06JQ5T8XK2M9R/step_0", Some("/system.slice/slurmstepd.scope/s06JQ5T8XK2M9R")),
        ("/slurm/uid_1000/job_7", Some("/slurm/uid_1000/job_7")),
        ("//pbs_jobs.service//jobs/9.server/x", Some("//pbs_jobs.service//jobs/9.server")),
        ("/lsf/c1/job.7.4711.17/x", Some("/lsf/c1/job.7.4711.17")),
        ("/kubepods/burstable/pod1-2/abc/inner", Some("/kubepods/burstable/pod1-2/abc")),
        ("/kubepods.slice/kubepods-pod1_2.slice", Some("/kubepods.slice/kubepods-pod1_2.slice")),
        ("/ecs/task/container/x", Some("/ecs/task/container")),
        ("/htcondor/condor_slot1@n/x", Some("/htcondor/condor_slot1@n")),
        ("/user.slice/user-0.slice/session-1.scope", None),
        ("/system.slice/slurmd.service", None),
        ("/", None),
        ("", None),
    ] {
        assert_eq!(job_cgroup(path), expected, "{path}");
    }
}
