//! Renders the snapshot as one page of Markdown that is also readable as plain text.

mod compute;
mod hardware;
mod software;
mod table;
mod units;

use crate::gpus::GpuInfo;
use crate::snapshot::Snapshot;
use table::single_line;
use units::{bytes, plural, uptime};

/// Renders all sections, most requested first. Empty sections are left out.
pub(crate) fn render(snapshot: &Snapshot) -> String {
    let mut page = format!(
        "# {}\n\n{}\n",
        single_line(&snapshot.node),
        summary(snapshot)
    );
    let parts = [
        ("Job", software::job(snapshot)),
        ("Cloud", software::cloud(snapshot)),
        ("Machine", hardware::machine(snapshot)),
        ("Processors", compute::processors(snapshot)),
        ("Memory", compute::memory(snapshot)),
        ("GPUs", hardware::gpus(snapshot)),
        ("Network", hardware::network(snapshot)),
        ("Disks", hardware::disks(snapshot)),
        ("Mounts", software::mounts(snapshot)),
        ("System", software::system(snapshot)),
        ("Cgroup limits", software::limits(snapshot)),
        ("Inputs", software::inputs(snapshot)),
        ("Environment", software::environment(snapshot)),
        ("Configuration", software::configuration(snapshot)),
        ("Unreadable files", software::unreadable(snapshot)),
    ];
    for (title, text) in parts {
        if !text.is_empty() {
            page.push_str(&format!("\n## {title}\n\n{text}"));
        }
    }
    page
}

/// Summarizes the machine in two lines.
fn summary(snapshot: &Snapshot) -> String {
    let Snapshot {
        cpu,
        memory,
        kernel,
        taken,
        pegel,
        ..
    } = snapshot;
    let mut hardware = Vec::new();
    hardware.extend(
        cpu.model
            .as_deref()
            .map(|model| format!("**{}**", single_line(model))),
    );
    if cpu.threads > 0 {
        let cores = match cpu.cores {
            0 => String::new(),
            cores => format!("{}, ", plural(cores, "core")),
        };
        hardware.push(format!("{cores}{}", plural(cpu.threads, "thread")));
    }
    if memory.total_bytes > 0 {
        hardware.push(bytes(memory.total_bytes));
    }
    hardware.extend(count_by_name(&snapshot.gpus));
    let mut software = Vec::new();
    software.extend(kernel.distribution.name.clone());
    software.extend(
        kernel
            .release
            .as_deref()
            .map(|release| format!("Linux {release}")),
    );
    if let Some(boot) = kernel.boot_time {
        let seconds = u64::try_from((taken.0 - boot.0) / 1000).unwrap_or(0);
        software.push(format!("up {}", uptime(seconds)));
    }
    software.push(format!("taken {} by pegel {pegel}", taken.rfc3339()));
    let lines = [hardware, software].map(|parts| single_line(&parts.join(" · ")));
    let lines = lines.iter().filter(|line| !line.is_empty());
    lines.map(String::as_str).collect::<Vec<_>>().join("  \n")
}

/// Counts GPUs by name: `8 × NVIDIA H200`.
fn count_by_name(gpus: &[GpuInfo]) -> Vec<String> {
    let mut names: Vec<(&str, usize)> = Vec::new();
    for gpu in gpus {
        let name = gpu.name.as_deref().unwrap_or(gpu.vendor);
        match names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => names.push((name, 1)),
        }
    }
    names
        .iter()
        .map(|(name, count)| format!("{count} × {name}"))
        .collect()
}

/// Returns the value, or an empty text if it is unknown.
fn or_empty(value: &Option<String>) -> String {
    value.clone().unwrap_or_default()
}

fn to_text<T: ToString>(value: Option<T>) -> String {
    value.map(|number| number.to_string()).unwrap_or_default()
}

/// Joins the known parts with spaces.
fn join_present(parts: &[Option<&str>]) -> String {
    parts
        .iter()
        .flatten()
        .copied()
        .collect::<Vec<_>>()
        .join(" ")
}
