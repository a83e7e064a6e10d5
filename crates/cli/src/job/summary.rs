//! The line that a job prints at its end: duration, nodes, CPU, memory, MPI, the late rank, and the
//! node that stands out most.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::plan::JobPlan;
use crate::agent_client::AgentClient;

/// A node stands out if it is so many points away from the median of at least so many nodes.
const POINTS_MIN: f64 = 15.0;
const NODES_MIN: usize = 3;
/// The most times at which running ranks are counted.
const STEPS_MAX: u64 = 5_000;
const GIB: f64 = (1u64 << 30) as f64;

/// Values by node.
type NodeValues = BTreeMap<String, f64>;

pub(super) fn summary_line(client: &AgentClient, plan: &JobPlan, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs() + 2;
    let nodes = plan.all_nodes();
    let query = |expression: &str| {
        let mut values = query(client, expression, &plan.file.head);
        values.retain(|node, _| nodes.contains(node));
        values
    };
    let busy = query(&format!(
        "100 * (1 - sum by (host) (increase(node_cpu_seconds_total{{mode=\"idle\"}}[{seconds}s])) \
         / sum by (host) (increase(node_cpu_seconds_total[{seconds}s])))"
    ));
    let memory = query("node_memory_MemTotal_bytes");
    let available = query(&format!(
        "min_over_time(node_memory_MemAvailable_bytes[{seconds}s])"
    ));
    let mut parts = vec![duration_text(elapsed), nodes_text(busy.len(), nodes.len())];
    if !busy.is_empty() {
        let mean = busy.values().sum::<f64>() / busy.len() as f64;
        parts.push(format!("CPU {mean:.0} %"));
    }
    parts.extend(memory_text(&memory, &available));
    parts.extend(mpi_texts(client, &plan.file.head, seconds));
    parts.extend(outlier_text(&busy));
    parts.join(" · ")
}

/// Describes the share of MPI in the time of all ranks, and the late rank.
fn mpi_texts(client: &AgentClient, head: &str, seconds: u64) -> Vec<String> {
    // Of all nodes, also of a head that is not in the allocation: the ranks are where they are.
    let total = |expression: &str| query(client, expression, head).values().sum::<f64>();
    let in_mpi = total("sum(mpi_time_total)");
    if in_mpi <= 0.0 {
        return Vec::new();
    }
    let step = seconds.div_ceil(STEPS_MAX);
    let started = "sum(mpi_hits_total{call=~\"MPI_Init|MPI_Init_thread\"})";
    let ended = "sum(mpi_hits_total{call=\"MPI_Finalize\"})";
    // The ranks that run at each step, added up. Those that started and ended between two steps
    // have no time outside MPI here.
    let ranks = format!("sum_over_time(({started} - ({ended} or vector(0)))[{seconds}s:{step}s])");
    let share = mpi_share(in_mpi, total(&ranks) * step as f64);
    let mut texts = vec![format!("MPI {share:.0} %")];
    let answer = client.get("/api/v1/mpi", &[]).unwrap_or(Value::Null);
    texts.extend(late_text(&answer));
    texts
}

/// Returns the percentage of MPI in the time of all ranks.
fn mpi_share(in_mpi: f64, of_ranks: f64) -> f64 {
    100.0 * in_mpi / of_ranks.max(in_mpi)
}

/// Names the rank for which all others waited longest, of all programs.
fn late_text(answer: &Value) -> Option<String> {
    let jobs = answer["jobs"].as_array()?;
    let late = jobs.iter().filter_map(|job| {
        let late = &job["late"];
        let waited = late["median"].as_f64()? - late["seconds"].as_f64()?;
        Some((waited, late["rank"].as_u64()?, late["node"].as_str()?))
    });
    let (waited, rank, node) = late.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let waited = duration_text(Duration::try_from_secs_f64(waited).ok()?);
    Some(format!(
        "rank {rank} on {node} late: others waited {waited} for it"
    ))
}

/// Evaluates a PromQL expression; series without the label `host` are those of the head.
fn query(client: &AgentClient, expression: &str, head: &str) -> NodeValues {
    let answer = client.get("/api/v1/query", &[("query", expression)]);
    let answer = answer.unwrap_or(Value::Null);
    let result = answer["data"]["result"].as_array().into_iter().flatten();
    let values = result.filter_map(|series| {
        let host = series["metric"]["host"].as_str().unwrap_or(head);
        let value: f64 = series["value"][1].as_str()?.parse().ok()?;
        value.is_finite().then(|| (host.to_owned(), value))
    });
    values.collect()
}

fn nodes_text(answered: usize, all: usize) -> String {
    match (answered, all) {
        (1, 1) => "1 node".to_owned(),
        (answered, all) if answered == all => format!("{all} nodes"),
        (answered, all) => format!("{answered} of {all} nodes"),
    }
}

/// Describes the highest use of memory of any node.
fn memory_text(total: &NodeValues, available: &NodeValues) -> Option<String> {
    let used = total.iter().filter_map(|(node, total)| {
        let used = total - available.get(node)?;
        (*total > 0.0).then_some((used, *total))
    });
    let (used, total) = used.max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)))?;
    Some(format!("memory {:.0}/{:.0} GiB", used / GIB, total / GIB))
}

/// Names the node whose use of CPU is farthest from the median.
fn outlier_text(busy: &NodeValues) -> Option<String> {
    if busy.len() < NODES_MIN {
        return None;
    }
    let mut sorted: Vec<f64> = busy.values().copied().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = match sorted.len() % 2 {
        1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    };
    let distance = |value: f64| (value - median).abs();
    let (node, value) = busy
        .iter()
        .max_by(|a, b| distance(*a.1).total_cmp(&distance(*b.1)))?;
    let side = match *value < median {
        true => "below",
        false => "above",
    };
    let points = distance(*value);
    (points >= POINTS_MIN).then(|| format!("{node} {points:.0} points {side} the median"))
}

fn duration_text(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", elapsed.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(list: &[(&str, f64)]) -> NodeValues {
        list.iter()
            .map(|(node, value)| ((*node).to_owned(), *value))
            .collect()
    }

    #[test]
    fn the_parts_of_the_line_are_short() {
        assert_eq!(duration_text(Duration::from_millis(3210)), "3.2s");
        assert_eq!(duration_text(Duration::from_secs(62)), "1m02s");
        assert_eq!(duration_text(Duration::from_secs(3720)), "1h02m");
        assert_eq!(nodes_text(1, 1), "1 node");
        assert_eq!(nodes_text(3, 4), "3 of 4 nodes");
        let total = values(&[("a", 251.0 * GIB), ("b", 251.0 * GIB)]);
        let available = values(&[("a", 200.0 * GIB), ("b", 147.0 * GIB)]);
        assert_eq!(
            memory_text(&total, &available).as_deref(),
            Some("memory 104/251 GiB")
        );
        assert_eq!(memory_text(&total, &NodeValues::new()), None);
    }

    #[test]
    fn the_share_of_mpi_is_that_of_the_time_in_which_ranks_ran() {
        assert_eq!(mpi_share(19.0, 50.0), 38.0);
        assert_eq!(mpi_share(2.0, 0.0), 100.0, "too short to be counted");
    }

    #[test]
    fn the_rank_that_most_was_waited_for_is_named() {
        let answer = serde_json::json!({"jobs": [
            {"late": {"rank": 3, "node": "n1", "seconds": 1.0, "median": 2.0}},
            {"late": null},
            {"late": {"rank": 317, "node": "nid0019", "seconds": 12.0, "median": 43.5}},
        ]});
        assert_eq!(
            late_text(&answer).as_deref(),
            Some("rank 317 on nid0019 late: others waited 31s for it")
        );
        assert_eq!(late_text(&Value::Null), None);
        assert_eq!(late_text(&serde_json::json!({"jobs": []})), None);
    }

    #[test]
    fn the_node_farthest_from_the_median_is_named() {
        let busy = values(&[("n1", 90.0), ("n2", 91.0), ("n3", 33.0), ("n4", 89.0)]);
        assert_eq!(
            outlier_text(&busy).as_deref(),
            Some("n3 56 points below the median")
        );
        let busy = values(&[("n1", 10.0), ("n2", 12.0), ("n3", 80.0)]);
        assert_eq!(
            outlier_text(&busy).as_deref(),
            Some("n3 68 points above the median")
        );
        assert_eq!(
            outlier_text(&values(&[("n1", 10.0), ("n2", 90.0)])),
            None,
            "two nodes"
        );
        assert_eq!(
            outlier_text(&values(&[("a", 10.0), ("b", 12.0), ("c", 20.0)])),
            None
        );
    }
}
