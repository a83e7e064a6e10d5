//! Checks messages against the limits after they were decoded and before anything else uses them.
//! The messages are those of a peer that may be broken or hostile.

use crate::limits::*;
use crate::{
    ChildMessage, Header, Hello, NodeUpdate, NodeUpdates, ParentMessage, Refusal, Request,
    ResponseChunk, ResponseHead, SelectRequest, SeriesDefinition, SeriesDefinitions, Tick, Welcome,
    child_message, parent_message, select_request,
};

/// What is wrong with a message: the field, and what would be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageFault {
    #[error("{field} is empty")]
    Empty { field: &'static str },
    #[error("{field} has {length} bytes; at most {limit} are accepted")]
    TooLong {
        field: &'static str,
        length: usize,
        limit: usize,
    },
    #[error("{field} has {count} elements; at most {limit} are accepted")]
    TooMany {
        field: &'static str,
        count: usize,
        limit: usize,
    },
    #[error("{field} has {length} bytes; {expected} are required")]
    Length {
        field: &'static str,
        length: usize,
        expected: usize,
    },
    #[error("{field} contains {found:?}; {accepted} are accepted")]
    Character {
        field: &'static str,
        found: char,
        accepted: &'static str,
    },
    #[error("{field} is {value}; {min} to {max} are accepted")]
    Range {
        field: &'static str,
        value: i64,
        min: i64,
        max: i64,
    },
    #[error("{field} is \"{value}\", which has a meaning in paths")]
    PathSegment {
        field: &'static str,
        value: &'static str,
    },
    #[error("{field} contains a group, which proto3 does not have")]
    Group { field: &'static str },
}

type Checked = Result<(), MessageFault>;

/// Checks any message of a child, except for what needs the messages before it, see
/// [`DefinitionCheck`].
pub fn check_child_message(message: &ChildMessage) -> Result<(), MessageFault> {
    use child_message::Kind;
    match &message.kind {
        Some(Kind::Hello(hello)) => check_hello(hello),
        Some(Kind::Series(definitions)) => check_definitions(definitions),
        Some(Kind::Tick(tick)) => check_tick(tick),
        Some(Kind::Nodes(updates)) => check_node_updates(updates),
        Some(Kind::Response(head)) => check_response_head(head),
        Some(Kind::Chunk(chunk)) => check_response_chunk(chunk),
        Some(Kind::Pong(_)) | None => Ok(()),
    }
}

/// Checks any message of a parent.
pub fn check_parent_message(message: &ParentMessage) -> Result<(), MessageFault> {
    use parent_message::Kind;
    match &message.kind {
        Some(Kind::Welcome(welcome)) => check_welcome(welcome),
        Some(Kind::Refusal(refusal)) => check_refusal(refusal),
        Some(Kind::Request(request)) => check_request(request),
        Some(Kind::Moved(moved)) => check_node_name("moved.node", &moved.node),
        Some(Kind::TickCredit(_) | Kind::ResponseCredit(_) | Kind::Cancel(_) | Kind::Ping(_))
        | None => Ok(()),
    }
}

/// Checks the first message of a child. Its protocol version is for the parent to compare, so that
/// a refusal can state the reason.
pub fn check_hello(hello: &Hello) -> Result<(), MessageFault> {
    check_node_name("hello.node", &hello.node)?;
    check_instance("hello.instance", &hello.instance)?;
    check_text("hello.version", &hello.version, NAME_BYTES_MAX)
}

/// Checks the answer of a parent.
pub fn check_welcome(welcome: &Welcome) -> Result<(), MessageFault> {
    check_node_name("welcome.node", &welcome.node)?;
    let interval = i64::from(welcome.interval_ms);
    let (min, max) = (INTERVAL_MS_MIN.into(), INTERVAL_MS_MAX.into());
    check_range("welcome.interval_ms", interval, min, max)?;
    check_count("welcome.path", welcome.path.len(), LEVELS_MAX)?;
    let mut path = welcome.path.iter();
    path.try_for_each(|node| check_node_name("welcome.path", node))
}

fn check_refusal(refusal: &Refusal) -> Checked {
    check_length("refusal.message", refusal.message.len(), REASON_BYTES_MAX)
}

/// Checks definitions of series: their ids count up by one. Whether they continue those of the
/// message before is checked by [`DefinitionCheck`].
pub fn check_definitions(definitions: &SeriesDefinitions) -> Result<(), MessageFault> {
    let first = definitions.series.first().map_or(0, |series| series.id);
    DefinitionCheck {
        next_id: first,
        bytes: 0,
    }
    .check(definitions)
}

/// Checks all definitions of one stream: their ids, their number and their total size.
#[derive(Debug, Default)]
pub struct DefinitionCheck {
    next_id: u32,
    bytes: usize,
}

impl DefinitionCheck {
    pub fn new() -> DefinitionCheck {
        DefinitionCheck::default()
    }

    /// The number of series that were defined.
    pub fn series(&self) -> usize {
        self.next_id as usize
    }

    /// Checks the next message. After an error the stream must be closed.
    pub fn check(&mut self, definitions: &SeriesDefinitions) -> Result<(), MessageFault> {
        for series in &definitions.series {
            if self.next_id as usize >= SERIES_MAX {
                let count = SERIES_MAX.saturating_add(1);
                return check_count("series", count, SERIES_MAX);
            }
            let expected = i64::from(self.next_id);
            check_range("series.id", series.id.into(), expected, expected)?;
            self.next_id += 1;
            check_definition(series)?;
            self.bytes += series.text.len() + series.unit.len() + series.help.len();
            check_length("series (all texts)", self.bytes, DEFINITION_BYTES_MAX)?;
        }
        Ok(())
    }
}

fn check_definition(series: &SeriesDefinition) -> Checked {
    check_filled("series.text", series.text.len())?;
    check_length("series.text", series.text.len(), TEXT_BYTES_MAX)?;
    check_text("series.unit", &series.unit, NAME_BYTES_MAX)?;
    check_length("series.help", series.help.len(), HELP_BYTES_MAX)
}

/// Checks a tick; its values are checked while they are decoded.
pub fn check_tick(tick: &Tick) -> Result<(), MessageFault> {
    check_count("tick.nodes", tick.nodes as usize, NODES_MAX)?;
    check_length("tick.values", tick.values.len(), MESSAGE_BYTES_MAX)
}

/// Checks the nodes that a child reports.
pub fn check_node_updates(updates: &NodeUpdates) -> Result<(), MessageFault> {
    check_count("nodes", updates.nodes.len(), NODES_MAX)?;
    updates.nodes.iter().try_for_each(check_node_update)
}

fn check_node_update(update: &NodeUpdate) -> Checked {
    check_node_name("nodes.node", &update.node)?;
    if !update.parent.is_empty() {
        check_node_name("nodes.parent", &update.parent)?;
    }
    if !update.instance.is_empty() {
        check_instance("nodes.instance", &update.instance)?;
    }
    check_text("nodes.version", &update.version, NAME_BYTES_MAX)
}

/// Checks a request. Its node is empty or the name of a node.
pub fn check_request(request: &Request) -> Result<(), MessageFault> {
    if !request.node.is_empty() {
        check_node_name("request.node", &request.node)?;
    }
    let (field, method) = ("request.method", &request.method);
    check_filled(field, method.len())?;
    check_length(field, method.len(), METHOD_BYTES_MAX)?;
    check_characters(field, method, "capital letters", |found| {
        found.is_ascii_uppercase()
    })?;
    let (field, target) = ("request.target", &request.target);
    check_filled(field, target.len())?;
    check_length(field, target.len(), TARGET_BYTES_MAX)?;
    check_characters(field, target, "printable ASCII characters", |found| {
        found.is_ascii_graphic()
    })?;
    if !target.starts_with('/') {
        return Err(MessageFault::Character {
            field,
            found: target.chars().next().unwrap_or_default(),
            accepted: "only targets that start with '/'",
        });
    }
    check_length("request.body", request.body.len(), MESSAGE_BYTES_MAX)?;
    check_headers("request.headers", &request.headers)
}

/// Checks the head of a response.
pub fn check_response_head(head: &ResponseHead) -> Result<(), MessageFault> {
    check_range("response.status", head.status.into(), 200, 599)?;
    check_headers("response.headers", &head.headers)
}

/// Checks a part of the body of a response.
pub fn check_response_chunk(chunk: &ResponseChunk) -> Result<(), MessageFault> {
    check_length("chunk.data", chunk.data.len(), CHUNK_BYTES)?;
    check_length("chunk.error", chunk.error.len(), REASON_BYTES_MAX)
}

/// Checks a request for samples. Its expressions are parsed elsewhere.
pub fn check_select(request: &SelectRequest) -> Result<(), MessageFault> {
    check_count("select.matchers", request.matchers.len(), MATCHERS_MAX)?;
    for matcher in &request.matchers {
        check_filled("select.matchers.label", matcher.label.len())?;
        check_length("select.matchers.label", matcher.label.len(), TEXT_BYTES_MAX)?;
        check_length("select.matchers.value", matcher.value.len(), TEXT_BYTES_MAX)?;
    }
    check_count("select.selectors", request.selectors.len(), MATCHERS_MAX)?;
    for selector in &request.selectors {
        check_length("select.selectors", selector.len(), TEXT_BYTES_MAX)?;
    }
    check_count("select.nodes", request.nodes.len(), NODES_MAX)?;
    for node in &request.nodes {
        check_node_name("select.nodes", node)?;
    }
    check_text("select.aggregation", &request.aggregation, NAME_BYTES_MAX)?;
    check_range("select.end_ms", request.end_ms, request.start_ms, i64::MAX)?;
    let is_partials = request.content == select_request::Content::Partials as i32;
    let step_min = i64::from(is_partials);
    check_range("select.step_ms", request.step_ms, step_min, i64::MAX)
}

/// Checks the name of a node: it stands in paths, in lists with commas and in headers.
pub fn check_node_name(field: &'static str, name: &str) -> Result<(), MessageFault> {
    check_filled(field, name.len())?;
    check_length(field, name.len(), NAME_BYTES_MAX)?;
    if let Some(value) = [".", ".."].into_iter().find(|segment| *segment == name) {
        return Err(MessageFault::PathSegment { field, value });
    }
    let accepted = "printable ASCII characters except '/' and ','";
    check_characters(field, name, accepted, |found| {
        found.is_ascii_graphic() && !matches!(found, '/' | ',')
    })
}

fn check_instance(field: &'static str, instance: &[u8]) -> Checked {
    let (length, expected) = (instance.len(), INSTANCE_BYTES);
    if length == expected {
        return Ok(());
    }
    Err(MessageFault::Length {
        field,
        length,
        expected,
    })
}

fn check_headers(field: &'static str, headers: &[Header]) -> Checked {
    check_count(field, headers.len(), HEADERS_MAX)?;
    for Header { name, value } in headers {
        check_filled(field, name.len())?;
        check_length(field, name.len(), NAME_BYTES_MAX)?;
        let is_name = |found: char| {
            found.is_ascii_alphanumeric() || matches!(found, '-' | '_' | '.' | '!' | '~')
        };
        check_characters(field, name, "names of letters, digits and hyphens", is_name)?;
        check_length(field, value.len(), HEADER_VALUE_BYTES_MAX)?;
        check_characters(field, value, "printable characters", |found| {
            !found.is_control() || found == '\t'
        })?;
    }
    Ok(())
}

/// Checks a text that is shown to people: no control characters.
fn check_text(field: &'static str, text: &str, limit: usize) -> Checked {
    check_length(field, text.len(), limit)?;
    check_characters(field, text, "printable characters", |found| {
        !found.is_control()
    })
}

fn check_characters(
    field: &'static str,
    text: &str,
    accepted: &'static str,
    is_accepted: impl Fn(char) -> bool,
) -> Checked {
    match text.chars().find(|&found| !is_accepted(found)) {
        None => Ok(()),
        Some(found) => Err(MessageFault::Character {
            field,
            found,
            accepted,
        }),
    }
}

fn check_filled(field: &'static str, length: usize) -> Checked {
    match length {
        0 => Err(MessageFault::Empty { field }),
        _ => Ok(()),
    }
}

fn check_length(field: &'static str, length: usize, limit: usize) -> Checked {
    if length <= limit {
        return Ok(());
    }
    Err(MessageFault::TooLong {
        field,
        length,
        limit,
    })
}

fn check_count(field: &'static str, count: usize, limit: usize) -> Checked {
    if count <= limit {
        return Ok(());
    }
    Err(MessageFault::TooMany {
        field,
        count,
        limit,
    })
}

fn check_range(field: &'static str, value: i64, min: i64, max: i64) -> Checked {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(MessageFault::Range {
        field,
        value,
        min,
        max,
    })
}
