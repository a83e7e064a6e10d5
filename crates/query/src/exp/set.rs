//! The series of a metric or of an expression, and how those of several belong together.

use std::collections::{BTreeMap, BTreeSet};

use pegel_metric::Millis;

use super::{Expression, Metric};
use crate::lines::{Kept, Room, common};
use crate::problem::Problem;

/// How the series of several sets find each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Join {
    /// Series that some sets lack are there too.
    pub is_union: bool,
    /// Only the tags that filters name.
    pub uses_query_tags: bool,
    /// Also the keys whose values differ.
    pub with_aggregated: bool,
}

impl Default for Join {
    fn default() -> Join {
        Join {
            is_union: true,
            uses_query_tags: false,
            with_aggregated: true,
        }
    }
}

#[derive(Debug)]
pub(super) struct Set {
    pub series: Vec<Member>,
    /// What stands in for a value that is missing.
    pub fill: f64,
    /// The keys that the filters name.
    keys: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Member {
    /// The names of the metrics in it.
    pub metrics: BTreeSet<String>,
    pub line: Kept,
}

impl Set {
    pub fn of_metric(lines: Vec<Kept>, metric: &Metric) -> Set {
        let member = |line: Kept| Member {
            metrics: BTreeSet::from([line.metric.clone()]),
            line,
        };
        Set {
            series: lines.into_iter().map(member).collect(),
            fill: metric.fill,
            keys: metric.keys.clone(),
        }
    }

    /// Every time that any of the series has.
    pub fn times(&self) -> BTreeSet<Millis> {
        let points = self.series.iter().flat_map(|member| &member.line.points);
        points.map(|point| point.0).collect()
    }

    /// By what they are found.
    fn keyed(&self, join: Join) -> BTreeMap<String, &Member> {
        let key = |member: &Member| {
            let is_wanted = |key: &String| !join.uses_query_tags || self.keys.contains(key);
            let tags = member.line.tags.iter().filter(|(key, _)| is_wanted(key));
            let mut text: String = tags
                .map(|(key, value)| format!("{key}\u{0}{value}\u{0}"))
                .collect();
            if join.with_aggregated {
                let keys = member
                    .line
                    .aggregate_tags
                    .iter()
                    .filter(|key| is_wanted(key));
                text.extend(keys.map(|key| format!("{key}\u{1}")));
            }
            text
        };
        self.series
            .iter()
            .map(|member| (key(member), member))
            .collect()
    }
}

impl Member {
    pub fn value(&self, time: Millis) -> Option<f64> {
        let points = &self.line.points;
        let at = points.binary_search_by_key(&time, |point| point.0).ok()?;
        Some(points[at].1)
    }
}

pub(super) fn work_out(
    expression: &Expression,
    sets: &BTreeMap<&str, Set>,
    room: &mut Room,
) -> Result<Set, Problem> {
    let names = expression.term.variables();
    let used: Vec<&Set> = names.iter().filter_map(|name| sets.get(name)).collect();
    let mut series = Vec::new();
    for members in joined(&used, expression.join) {
        series.push(combine(expression, &names, &used, &members, room)?);
    }
    if series.is_empty() && !expression.join.is_union {
        return Err(Problem::bad(format!(
            "No intersections found between the series of {}",
            expression.id
        )));
    }
    Ok(Set {
        series,
        fill: expression.fill,
        keys: used.iter().flat_map(|set| set.keys.clone()).collect(),
    })
}

/// Which series go together: one of each set, or none where it has none that fits.
fn joined<'a>(sets: &[&'a Set], join: Join) -> Vec<Vec<Option<&'a Member>>> {
    if sets.iter().all(|set| set.series.len() == 1) {
        return vec![sets.iter().map(|set| set.series.first()).collect()];
    }
    let keyed: Vec<BTreeMap<String, &Member>> = sets.iter().map(|set| set.keyed(join)).collect();
    let keys: BTreeSet<&String> = keyed.iter().flat_map(|set| set.keys()).collect();
    keys.into_iter()
        .map(|key| {
            keyed
                .iter()
                .map(|set| set.get(key).copied())
                .collect::<Vec<_>>()
        })
        .filter(|members| join.is_union || members.iter().all(Option::is_some))
        .collect()
}

fn combine(
    expression: &Expression,
    names: &[&str],
    sets: &[&Set],
    members: &[Option<&Member>],
    room: &mut Room,
) -> Result<Member, Problem> {
    let there: Vec<&Member> = members.iter().flatten().copied().collect();
    let times: BTreeSet<Millis> = there
        .iter()
        .flat_map(|member| member.line.points.iter().map(|point| point.0))
        .collect();
    room.take_points(times.len())?;
    let value = |time: Millis| {
        let of = |name: &str| {
            let at = names.iter().position(|known| *known == name);
            at.map_or(f64::NAN, |at| {
                let own = members[at].and_then(|member| member.value(time));
                own.unwrap_or(sets[at].fill)
            })
        };
        (time, expression.term.value(&of))
    };
    let lines: Vec<&Kept> = there.iter().map(|member| &member.line).collect();
    let (tags, aggregate_tags) = common(&lines);
    Ok(Member {
        metrics: there
            .iter()
            .flat_map(|member| member.metrics.clone())
            .collect(),
        line: Kept {
            metric: expression.id.clone(),
            tags,
            aggregate_tags,
            tsuids: Vec::new(),
            points: times.into_iter().map(value).collect(),
        },
    })
}
