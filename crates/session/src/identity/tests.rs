use super::*;

fn folder(
    requested: &RequestedNames,
    variables: &[(&str, &str)],
    working_dir: &str,
    cgroup: &str,
) -> Option<String> {
    let environment = |name: &str| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let caller = CallerContext {
        environment: &environment,
        working_dir: Path::new(working_dir),
        cgroup,
        runner_task: None,
    };
    SessionIdentity::resolve(requested, &caller).map(|identity| identity.folder())
}

#[test]
#[rustfmt::skip]
fn each_batch_system_names_its_tasks() {
    for (variables, expected) in [
        (&[("SLURM_JOB_ID", "12"), ("SLURM_JOB_NAME", "run it")][..], "12/run_it/1"),
        (&[("SLURM_JOB_ID", "14"), ("SLURM_ARRAY_JOB_ID", "12"), ("SLURM_ARRAY_TASK_ID", "2"), ("SLURM_RESTART_COUNT", "1")], "12/2/2"),
        (&[("FLUX_JOB_ID", "f2m4")], "f2m4/f2m4/1"),
        (&[("PBS_JOBID", "12[3].server"), ("PBS_ARRAY_INDEX", "3")], "12_3_.server/3/1"),
        (&[("PBS_JOBID", "12.server"), ("PBS_JOBNAME", "sort"), ("PBS_TASKNUM", "1")], "12.server/sort/1"),
        (&[("LSB_JOBID", "5"), ("LSB_JOBINDEX", "0"), ("LSB_JOBNAME", "n")], "5/n/1"),
        (&[("AZ_BATCH_JOB_ID", "job"), ("AZ_BATCH_TASK_ID", "task")], "job/task/1"),
        (&[("AZ_BATCH_JOB_ID", "job"), ("VM_TASK_NAME", "t")], "t/t/1"),
        (&[("AWS_BATCH_JOB_ID", "a-b:7"), ("AWS_BATCH_JOB_ARRAY_INDEX", "7"), ("AWS_BATCH_JOB_ATTEMPT", "2")], "a-b/7/2"),
        (&[("BATCH_JOB_UID", "u"), ("BATCH_TASK_INDEX", "0"), ("BATCH_TASK_RETRY_ATTEMPT", "0")], "u/0/1"),
        (&[("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("POD_NAME", "p-1")], "p-1/p-1/1"),
    ] {
        let found = folder(&RequestedNames::default(), variables, "/", "");
        assert_eq!(found.as_deref(), Some(expected), "{variables:?}");
    }
}

#[test]
fn workflow_engines_name_tasks_before_batch_systems_do() {
    let nextflow = [("NXF_RUN_NAME", "mad_curie")];
    for (variables, dir, expected) in [
        (
            &[][..],
            "/x/cromwell-executions/main/0c1d/call-align/shard-3/attempt-2/execution",
            "0c1d/align-3/2",
        ),
        (
            &[],
            "/cromwell-executions/main/0c1d/call-sub/sub/77/call-sort/execution",
            "0c1d/sort/1",
        ),
        (
            &nextflow[..],
            "/scratch/work/3f/70944c7a549b6221e1ccc7b4b21b62",
            "mad_curie/3f70944c/1",
        ),
    ] {
        let variables = [variables, &[("SLURM_JOB_ID", "12")]].concat();
        let found = folder(&RequestedNames::default(), &variables, dir, "");
        assert_eq!(found.as_deref(), Some(expected), "{dir}");
    }
}

#[test]
fn the_task_file_of_tes_names_the_task() {
    let caller = CallerContext {
        environment: &|_| None,
        working_dir: Path::new("/mnt/batch/tasks/workitems/j/job-1/t/wd"),
        cgroup: "",
        runner_task: Some(r#"{"Id": "0c1d2e3f_4a5b6c7d", "WorkflowId": "x"}"#),
    };
    let identity = SessionIdentity::resolve(&RequestedNames::default(), &caller);
    let folder = identity.map(|identity| identity.folder());
    assert_eq!(folder.as_deref(), Some("0c1d2e3f/0c1d2e3f_4a5b6c7d/1"));
}

#[test]
fn the_cgroup_names_a_job_that_the_environment_does_not() {
    for (cgroup, expected) in [
        (
            "0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0\n",
            "77/77/1",
        ),
        (
            "0::/pbs_jobs.service/jobs/9.server\n",
            "9.server/9.server/1",
        ),
    ] {
        let found = folder(&RequestedNames::default(), &[], "/", cgroup);
        assert_eq!(found.as_deref(), Some(expected), "{cgroup}");
    }
    let login = "0::/user.slice/user-0.slice\n";
    assert_eq!(folder(&RequestedNames::default(), &[], "/", login), None);
}

#[test]
fn requested_names_come_first_and_cannot_leave_their_folder() {
    let requested = RequestedNames {
        workflow: Some("../../etc".to_owned()),
        task: Some("..".to_owned()),
        attempt: Some("a/b\0c".to_owned()),
    };
    let found = folder(&requested, &[("SLURM_JOB_ID", "12")], "/", "");
    assert_eq!(found.as_deref(), Some(".._.._etc/_../a_b_c"));
    assert_eq!(path_component(""), "_");
    assert_eq!(path_component(&".".repeat(500)).len(), 120);
    assert_eq!(path_component(&"ä".repeat(500)), "_".repeat(120));
}
