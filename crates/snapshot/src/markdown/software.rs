//! The sections on the job, the cloud, mounts, the system, cgroup limits, environment and configuration.

use super::table::{definition_list, single_line, table};
use super::units::{bytes, plural, three_digits};
use super::{or_empty, to_text};
use crate::snapshot::Snapshot;

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
    let mut out = String::new();
    if let Some(cloud) = &snapshot.cloud {
        let provider = cloud
            .provider
            .map_or("unknown", |provider| provider.as_str());
        let mut rows = vec![("provider", provider.to_owned())];
        rows.extend(
            cloud
                .facts
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone())),
        );
        rows.push(("error", or_empty(&cloud.trouble)));
        out = definition_list(&rows);
        let events: Vec<Vec<String>> = cloud
            .events
            .iter()
            .map(|event| {
                vec![
                    event.kind.clone(),
                    event.status.clone(),
                    or_empty(&event.not_before),
                    or_empty(&event.source),
                ]
            })
            .collect();
        if !events.is_empty() {
            out.push_str("\n**Scheduled events**\n\n");
            out.push_str(&table(
                &["event", "status", "not before", "source"],
                &events,
            ));
        }
    }
    if let Some(batch) = &snapshot.azure_batch {
        if !out.is_empty() {
            out.push('\n');
        }
        let time = |moment: Option<crate::Timestamp>| {
            moment.map(crate::Timestamp::rfc3339).unwrap_or_default()
        };
        out.push_str(&definition_list(&[
            ("Batch pool", or_empty(&batch.pool)),
            ("Batch node", or_empty(&batch.vm)),
            ("Allocated", time(batch.allocated)),
            ("Booted", time(batch.booted)),
            (
                "Log",
                format!(
                    "{}, {} read, {} unknown",
                    batch.log.display(),
                    plural(batch.lines as usize, "line"),
                    batch.unknown_lines
                ),
            ),
        ]));
    }
    out
}

pub(super) fn mounts(snapshot: &Snapshot) -> String {
    if snapshot.mounts.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = snapshot
        .mounts
        .iter()
        .map(|mount| {
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
        })
        .collect();
    table(&["path", "type", "size", "source", "options"], &rows)
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
    let mut out = definition_list(&[
        ("Distribution", or_empty(&kernel.distribution.name)),
        ("Kernel", or_empty(&kernel.release)),
        ("Build", or_empty(&kernel.version)),
        (
            "Booted",
            kernel
                .boot_time
                .map(crate::Timestamp::rfc3339)
                .unwrap_or_default(),
        ),
        ("Clock source", clock),
        ("Security", or_empty(&kernel.security_modules)),
        ("Container", or_empty(&kernel.container)),
        ("Parameters", parameters.trim().to_owned()),
        ("Mitigations", mitigations(snapshot)),
    ]);
    let vulnerable: Vec<Vec<String>> = kernel
        .mitigations
        .iter()
        .filter(|(_, text)| text.starts_with("Vulnerable"))
        .map(|(name, text)| vec![name.clone(), text.clone()])
        .collect();
    if !vulnerable.is_empty() {
        out.push('\n');
        out.push_str(&table(&["vulnerability", "status"], &vulnerable));
    }
    out
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
    let rows: Vec<Vec<String>> = snapshot
        .unreadable
        .iter()
        .map(|one| vec![one.path.display().to_string(), one.why.clone()])
        .collect();
    format!(
        "{}\nTo include them: {}.\n",
        table(&["path", "reason"], &rows),
        first.hint
    )
}
