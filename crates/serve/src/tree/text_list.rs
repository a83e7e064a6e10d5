//! Distinct texts of series over all nodes: names, label keys, label values, descriptions. Nodes
//! send the texts instead of their series: many nodes have the same ones, and lists for completion
//! cover all series.

use std::collections::BTreeSet;
use std::sync::Arc;

use pegel_metric::{Family, Millis, Selector, Series};
use pegel_query::promql::{
    LabelMatcher, LabelSet, MatchKind, PromqlError, PromqlErrorKind, Selection, StoreSource,
};
use pegel_store::{QueryError, RangeQuery};
use serde::{Deserialize, Serialize};

use super::chosen_nodes::{ChosenNodes, FanOutLimits};
use super::host_label::{ADDED_LABELS, EXPORTED_HOST, HOST};

/// The request for texts; only through the tree.
pub(crate) const TEXTS_TARGET: &str = "/tree/texts";

/// Which texts are listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TextKind {
    /// The names of metrics.
    Names,
    /// The keys of labels.
    Keys,
    /// The values of one label.
    Values(String),
    /// The values of all labels.
    AllValues,
    /// `[name, type, help, unit, input]` of each metric, as JSON.
    Descriptions,
}

/// A request as it is sent to nodes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TextRequest {
    pub kind: TextKind,
    /// Lists of matchers of PromQL (label, operator, value), any of which selects series by the
    /// names that PromQL shows. `None`: all series, by their stored names.
    pub selectors: Option<Vec<Vec<(String, String, String)>>>,
    pub start: Millis,
    pub end: Millis,
    /// Only these nodes; none: all nodes.
    #[serde(default)]
    pub nodes: Vec<String>,
}

/// The response of a node.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct TextList {
    /// Of the label `host`: an empty text from a node itself, the names of nodes from a parent.
    pub texts: BTreeSet<String>,
    /// Nodes below that did not answer.
    #[serde(default)]
    pub late: Vec<String>,
}

impl TextRequest {
    /// Creates a request with selectors of PromQL. `None` if a condition is on a label that nodes
    /// do not have.
    pub(crate) fn promql(
        kind: TextKind,
        selectors: &[Vec<LabelMatcher>],
        (start, end): (Millis, Millis),
    ) -> Option<TextRequest> {
        let mut matchers = selectors.iter().flatten();
        if matchers.any(|matcher| ADDED_LABELS.contains(&matcher.name.as_str())) {
            return None;
        }
        let condition = |matcher: &LabelMatcher| {
            let operator = match matcher.kind {
                MatchKind::Equal => "=",
                MatchKind::NotEqual => "!=",
                MatchKind::Regex(_) => "=~",
                MatchKind::NotRegex(_) => "!~",
            };
            let texts = [matcher.name.as_str(), operator, matcher.value.as_str()];
            let [name, operator, value] = texts.map(str::to_owned);
            (name, operator, value)
        };
        let selectors = selectors.iter();
        let selectors = selectors.map(|matchers| matchers.iter().map(condition).collect());
        Some(TextRequest {
            kind,
            selectors: Some(selectors.collect()),
            start,
            end,
            nodes: Vec::new(),
        })
    }

    /// Creates a request for the texts of all stored series.
    pub(crate) fn stored(kind: TextKind) -> TextRequest {
        TextRequest {
            kind,
            selectors: None,
            start: 0,
            end: Millis::MAX,
            nodes: Vec::new(),
        }
    }
}

/// The texts found so far, within a limit on memory.
struct FoundTexts<'a> {
    kind: &'a TextKind,
    texts: BTreeSet<String>,
    bytes_left: usize,
    bytes_max: usize,
    /// The family before, whose description is known.
    described: Option<(String, Family)>,
}

/// The memory of a text besides its bytes.
const TEXT_BYTES: usize = 64;

impl FoundTexts<'_> {
    fn add(&mut self, text: &str) -> Result<(), QueryError> {
        if self.texts.contains(text) {
            return Ok(());
        }
        let left = self.bytes_left.checked_sub(TEXT_BYTES + text.len());
        self.bytes_left = left.ok_or(QueryError::TooLarge(self.bytes_max))?;
        self.texts.insert(text.to_owned());
        Ok(())
    }

    /// Adds the texts of one series of a node.
    fn add_series<'l>(
        &mut self,
        name: &str,
        mut labels: impl Iterator<Item = (&'l str, std::borrow::Cow<'l, str>)>,
        family: &Family,
    ) -> Result<(), QueryError> {
        match self.kind {
            TextKind::Names => self.add(name),
            TextKind::Values(label) if label == HOST => self.add(""),
            TextKind::Values(label) => {
                let label = match label == EXPORTED_HOST {
                    true => HOST,
                    false => label,
                };
                match labels.find(|(key, _)| *key == label) {
                    Some((_, value)) => self.add(&value),
                    None => Ok(()),
                }
            }
            TextKind::Keys => labels.try_for_each(|(key, _)| match key {
                HOST => self.add(EXPORTED_HOST),
                key => self.add(key),
            }),
            TextKind::AllValues => labels.try_for_each(|(_, value)| self.add(&value)),
            TextKind::Descriptions => {
                let known = self.described.as_ref();
                if known.is_some_and(|(known, of)| known == name && of == family) {
                    return Ok(());
                }
                self.described = Some((name.to_owned(), family.clone()));
                let (kind, input) = (family.kind.as_str(), family.input.as_str());
                let description = serde_json::json!([name, kind, family.help, family.unit, input]);
                self.add(&description.to_string())
            }
        }
    }
}

/// Returns the texts of this agent's series. Blocks.
pub(crate) fn own_texts(
    promql: &StoreSource,
    request: &TextRequest,
    limits: &FanOutLimits,
) -> Result<BTreeSet<String>, PromqlError> {
    let mut found = FoundTexts {
        kind: &request.kind,
        texts: BTreeSet::new(),
        bytes_left: limits.bytes_max,
        bytes_max: limits.bytes_max,
        described: None,
    };
    let Some(selectors) = &request.selectors else {
        let query = RangeQuery {
            bytes_max: limits.bytes_max,
            deadline: limits.deadline,
            cancellation: limits.cancellation.clone(),
            ..RangeQuery::new(Selector::all(), request.start, request.end, None)
        };
        let mut result = Ok(());
        let stored = promql.stored_series();
        stored.series(&query, &mut |series: &Arc<Series>| {
            if result.is_ok() {
                result = found.add_series(series.name(), series.labels(), series.family());
            }
        })?;
        result?;
        return Ok(found.texts);
    };
    for conditions in selectors {
        let conditions: Vec<(&str, &str, &str)> = { conditions.iter() }
            .map(|(label, operator, value)| (&**label, &**operator, &**value))
            .collect();
        let matchers = LabelMatcher::list(&conditions)?;
        let selection = Selection {
            matchers: &matchers,
            input: None,
            start: request.start,
            end: request.end,
            bytes_max: limits.bytes_max,
            deadline: limits.deadline,
            cancellation: limits.cancellation.clone(),
        };
        promql.series(&selection, &mut |labels: LabelSet, family| {
            let pairs = labels.iter().map(|(key, value)| (key, value.into()));
            let added = found.add_series(labels.metric_name(), pairs, family);
            added.map_err(|error| PromqlError::new(PromqlErrorKind::TooLarge, error.to_string()))
        })?;
    }
    Ok(found.texts)
}

/// Adds the texts of the chosen nodes below this agent to its own. Blocks.
pub(crate) fn texts_of_nodes(
    own: BTreeSet<String>,
    nodes: &ChosenNodes,
    request: &TextRequest,
    limits: &FanOutLimits,
) -> Result<BTreeSet<String>, QueryError> {
    let is_host = request.kind == TextKind::Values(HOST.to_owned());
    let names_hosts = is_host || request.kind == TextKind::AllValues;
    let mut texts = BTreeSet::new();
    if !own.is_empty() && names_hosts {
        texts.insert(nodes.index.own.to_string());
    }
    if !is_host {
        texts.extend(own);
    }
    let any = |_: &str| true;
    let answers = nodes.ask(&any, limits, |names| {
        let request = TextRequest {
            nodes: names.to_vec(),
            ..request.clone()
        };
        let body = serde_json::to_vec(&request).unwrap_or_default();
        (TEXTS_TARGET.to_owned(), body.into())
    })?;
    for answer in answers {
        let Ok(list) = serde_json::from_slice::<TextList>(&answer.body) else {
            tracing::warn!(child = answer.child, "malformed texts of a node");
            nodes.miss_child(&answer.child, &any);
            continue;
        };
        nodes.miss(&answer.child, list.late.iter().map(String::as_str), &any);
        if !answer.is_parent && names_hosts && !list.texts.is_empty() {
            texts.insert(answer.child.clone());
        }
        for text in list.texts {
            match (is_host, answer.is_parent) {
                (false, _) => drop(texts.insert(text)),
                (true, true) => texts.extend(nodes.checked_host(&answer, text, &any)),
                (true, false) => {}
            }
        }
    }
    if request.kind == TextKind::Keys && !texts.is_empty() {
        texts.insert(HOST.to_owned());
    }
    Ok(texts)
}
