//! The sections on the job, the cloud, mounts, the system, cgroup limits, environment and
//! configuration.

use super::table::{definition_list, join_blocks, single_line, table};
use super::units::{bytes, plural, three_digits};
use super::{or_empty, to_text};
use crate::azure_batch::AzureBatch;
use crate::cloud::CloudInfo;
use crate::snapshot::Snapshot;
use crate::timestamp::Timestamp;

pub(super) fn job(snapshot: &Snapshot) -> String {
    let Some(job) = &snapshot.job else {
        return String::new();
    };
    let rank = match (job.rank, job.ranks) {
        (Some(rank), Some(ranks)) => format!("{rank} of {ranks}"),
        (rank, _) => to_text(rank),
    };
    definition_list(&[
        ("Scheduler", job.scheduler.to_owned()),
        ("Job", job.id.clone()),
        ("SLUID", or_empty(&job.sluid)),
        ("Name", or_empty(&job.name)),
        ("Step", or_empty(&job.step)),
        ("Task", or_empty(&job.task)),
        ("Array", or_empty(&job.array_id)),
        ("Index", or_empty(&job.array_index)),
        ("Attempt", or_empty(&job.attempt)),
        ("Rank", rank),
        ("Local rank", to_text(job.local_rank)),
        ("Nodes", to_text(job.nodes)),
        ("Cluster", or_empty(&job.cluster)),
        ("Queue", or_empty(&job.queue)),
        ("Account", or_empty(&job.account)),
        ("Source", job.from.to_owned()),
    ])
}

pub(super) fn cloud(snapshot: &Snapshot) -> String {
    let cloud = snapshot.cloud.as_ref().map(cloud_facts);
    let batch = snapshot.azure_batch.as_ref().map(azure_batch);
    join_blocks(&[cloud.unwrap_or_default(), batch.unwrap_or_default()])
}

fn cloud_facts(cloud: &CloudInfo) -> String {
    let provider = cloud
        .provider
        .map_or("unknown", |provider| provider.as_str());
    let facts = cloud
        .facts
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()));
    let mut rows = vec![("provider", provider.to_owned())];
    rows.extend(facts);
    rows.push(("error", or_empty(&cloud.trouble)));
    let mut out = definition_list(&rows);
    let events = cloud.events.iter().map(|event| {
        vec![
            event.kind.clone(),
            event.status.clone(),
            or_empty(&event.not_before),
            or_empty(&event.source),
        ]
    });
    let events = table(&["event", "status", "not before", "source"], events);
    if !events.is_empty() {
        out.push_str("\n**Scheduled events**\n\n");
        out.push_str(&events);
    }
    out
}

fn azure_batch(batch: &AzureBatch) -> String {
    let time = |moment: Option<Timestamp>| moment.map(Timestamp::rfc3339).unwrap_or_default();
    let lines = plural(batch.lines as usize, "line");
    let log = batch.log.display();
    definition_list(&[
        ("Batch pool", or_empty(&batch.pool)),
        ("Batch node", or_empty(&batch.vm)),
        ("Allocated", time(batch.allocated)),
        ("Booted", time(batch.booted)),
        (
            "Log",
            format!("{log}, {lines} read, {} unknown", batch.unknown_lines),
        ),
    ])
}

pub(super) fn mounts(snapshot: &Snapshot) -> String {
    let rows = snapshot.mounts.iter().map(|mount| {
        let mut options = mount.options.join(",");
        if mount.options_left_out > 0 {
            options.push_str(&format!(" +{}", mount.options_left_out));
        }
        vec![
            mount.path.clone(),
            mount.kind.clone(),
            to_text(mount.bytes.map(bytes)),
            mount.source.clone(),
            options,
        ]
    });
    table(&["path", "type", "size", "source", "options"], rows)
}

pub(super) fn system(snapshot: &Snapshot) -> String {
    let kernel = &snapshot.kernel;
    let others = kernel
        .clock_sources
        .iter()
        .filter(|name| Some(*name) != kernel.clock_source.as_ref());
    let others: Vec<&str> = others.map(String::as_str).collect();
    let clock = match (&kernel.clock_source, others.as_slice()) {
        (Some(clock), []) => clock.clone(),
        (Some(clock), others) => format!("{clock} (also {})", others.join(", ")),
        (None, _) => String::new(),
    };
    let line = &kernel.command_line;
    let mut parameters = line.parameters.join(" ");
    if line.left_out > 0 {
        parameters.push_str(&format!(" … {} not shown", line.left_out));
    }
    let properties = definition_list(&[
        ("Distribution", or_empty(&kernel.distribution.name)),
        ("Kernel", or_empty(&kernel.release)),
        ("Build", or_empty(&kernel.version)),
        (
            "Booted",
            kernel.boot_time.map(Timestamp::rfc3339).unwrap_or_default(),
        ),
        ("Clock source", clock),
        ("Security", or_empty(&kernel.security_modules)),
        ("Container", or_empty(&kernel.container)),
        ("Parameters", parameters.trim().to_owned()),
        ("Mitigations", mitigations(snapshot)),
    ]);
    let is_vulnerable = |(_, text): &(&String, &String)| text.starts_with("Vulnerable");
    let vulnerable = kernel.mitigations.iter().filter(is_vulnerable);
    let rows = vulnerable.map(|(name, text)| vec![name.clone(), text.clone()]);
    join_blocks(&[properties, table(&["vulnerability", "status"], rows)])
}

fn mitigations(snapshot: &Snapshot) -> String {
    let all = &snapshot.kernel.mitigations;
    let count = |prefix: &str| all.values().filter(|text| text.starts_with(prefix)).count();
    let (not_affected, vulnerable) = (count("Not affected"), count("Vulnerable"));
    match all.len() {
        0 => String::new(),
        total => format!(
            "{} mitigated, {vulnerable} vulnerable, {not_affected} not affected",
            total - not_affected - vulnerable
        ),
    }
}

pub(super) fn limits(snapshot: &Snapshot) -> String {
    let cgroup = &snapshot.cgroup;
    let Some(version) = cgroup.version else {
        return String::new();
    };
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "no limit".to_owned());
    definition_list(&[
        (
            "Cgroup",
            format!("{version} {}", cgroup.path.as_deref().unwrap_or_default()),
        ),
        ("Memory", or_none(cgroup.memory_bytes.map(bytes))),
        (
            "Memory, soft",
            cgroup.memory_high_bytes.map(bytes).unwrap_or_default(),
        ),
        ("Swap", cgroup.swap_bytes.map(bytes).unwrap_or_default()),
        (
            "Processor time",
            or_none(
                cgroup
                    .cpus
                    .map(|cpus| format!("{} processors", three_digits(cpus))),
            ),
        ),
        ("Processors", or_empty(&cgroup.cpuset)),
        ("Memory nodes", or_empty(&cgroup.cpuset_memory)),
        (
            "Processes",
            or_none(cgroup.processes.map(|count| count.to_string())),
        ),
    ])
}

pub(super) fn environment(snapshot: &Snapshot) -> String {
    let lines = snapshot.environment.iter();
    let lines = lines.map(|(name, value)| format!("    {name}={}\n", single_line(value)));
    lines.collect()
}

/// The values of programs that the agent runs once.
pub(super) fn inputs(snapshot: &Snapshot) -> String {
    let values = snapshot.inputs.values().flatten();
    let lines = values.map(|(series, value)| format!("    {} {value}\n", single_line(series)));
    lines.collect()
}

pub(super) fn configuration(snapshot: &Snapshot) -> String {
    let Some(configuration) = &snapshot.configuration else {
        return String::new();
    };
    let from = match &configuration.file {
        Some(file) => format!("File: {}\n\n", single_line(&file.display().to_string())),
        None => "No file; values from defaults, environment and command line.\n\n".to_owned(),
    };
    let lines = configuration.values.lines();
    let lines = lines
        .iter()
        .map(|(key, value)| format!("    {key}: {}\n", single_line(value)));
    format!("{from}{}", lines.collect::<String>())
}

pub(super) fn unreadable(snapshot: &Snapshot) -> String {
    let Some(first) = snapshot.unreadable.first() else {
        return String::new();
    };
    let unreadable = snapshot.unreadable.iter();
    let rows = unreadable.map(|one| vec![one.path.display().to_string(), one.why.to_owned()]);
    let table = table(&["path", "reason"], rows);
    format!("{table}\nTo include them: {}.\n", first.hint)
}
