//! `GET /api/v1/nodes` and `GET /api/v1/tree`.

use std::collections::HashMap;
use std::time::Instant;

use axum::extract::Extension;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use pegel_metric::Selector;
use pegel_tree_protocol::NodeRow;
use serde_json::{Map, Value, json};

use super::node_values::NODE_VALUES_TIME;
use super::{HandlerResult, ServerContext, SharedContext};
use crate::api_error::ApiError;
use crate::content_negotiation;
use crate::guard::Caller;
use crate::json_response::{JSON, json_response};
use crate::query_parameters::QueryParameters;
use crate::tree::{NodeChoice, RequestTree};

/// The nodes of the tree with their state and figures; `metric` adds its current value on each. An
/// agent without a tree lists itself.
pub(super) async fn nodes(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    RequestTree(tree): RequestTree,
    uri: Uri,
    headers: HeaderMap,
) -> HandlerResult {
    let parameters = QueryParameters::parse(&uri, &["metric"])?;
    let metric = parameters.single("metric")?.map(Selector::name);
    let gzip = content_negotiation::accepts_gzip(&headers);
    let mut buffer = context.executor.response_buffer(caller.rights);
    let executor = context.clone();
    let made = executor.executor.query(caller.rights, move || {
        let (rows, values) = match &tree {
            None => {
                let values = metric.as_ref().map(|metric| own_value(&context, metric));
                (vec![own_row(&context)], values.transpose()?)
            }
            Some(tree) => {
                let nodes: Vec<NodeRow> = tree.tree.nodes();
                tree.record.expect([context.agent.node.as_str()]);
                let mut values = None;
                if let Some(metric) = &metric {
                    let source = tree.source(NodeChoice::All)?;
                    let deadline = Instant::now() + NODE_VALUES_TIME;
                    let mut sums: HashMap<String, f64> = HashMap::new();
                    for found in source.latest_of_nodes(deadline, metric)? {
                        *sums.entry(found.host).or_default() += found.latest.value;
                    }
                    values = Some(sums);
                }
                (nodes.iter().map(row_json).collect(), values)
            }
        };
        let rows: Vec<Value> = { rows.into_iter() }
            .map(|row| with_value(row, values.as_ref()))
            .collect();
        buffer.json(&json!({"node": context.agent.node, "nodes": rows}))?;
        buffer.finish(JSON, gzip)
    });
    Ok(made.await?.into_response())
}

fn own_value(context: &ServerContext, metric: &Selector) -> Result<HashMap<String, f64>, ApiError> {
    let mut values = HashMap::new();
    let deadline = Instant::now() + NODE_VALUES_TIME;
    let store = &context.agent.store;
    store.latest_until(deadline, metric, 0, &mut |_, latest| {
        *values.entry(context.agent.node.clone()).or_default() += latest.value;
    })?;
    Ok(values)
}

fn with_value(mut row: Value, values: Option<&HashMap<String, f64>>) -> Value {
    if let (Some(values), Some(fields)) = (values, row.as_object_mut()) {
        let node = fields
            .get("node")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let value = json!(values.get(node));
        fields.insert("value".to_owned(), value);
    }
    row
}

/// Unknown figures are null.
fn figure(value: f32) -> Value {
    // Shortest form: a float of 32 bits has many digits as a double.
    let text = value.to_string();
    text.parse::<f64>().map_or(Value::Null, Value::from)
}

fn row_json(row: &NodeRow) -> Value {
    let overview = &row.overview;
    let outliers = row
        .outliers
        .iter()
        .map(|(figure, value, median)| json!({"figure": figure, "value": value, "median": median}));
    json!({
        "node": row.node,
        "parent": row.parent,
        "state": row.status.as_str(),
        "lag_ms": row.lag_ms,
        "clock_offset_ms": row.clock_offset_ms,
        "version": row.version,
        "is_parent": row.is_parent,
        "busy": figure(overview.busy),
        "memory": figure(overview.memory),
        "pressure": figure(overview.pressure),
        "gpu": figure(overview.gpu),
        "network": figure(overview.network),
        "temperature": figure(overview.temperature),
        "load": figure(overview.load),
        "outliers": outliers.collect::<Vec<Value>>(),
        "problem": row.problem,
    })
}

/// The row of an agent without a tree, which computes no figures.
fn own_row(context: &ServerContext) -> Value {
    let agent = &context.agent;
    let mut row: Map<String, Value> = Map::new();
    for key in [
        "lag_ms",
        "clock_offset_ms",
        "busy",
        "memory",
        "pressure",
        "gpu",
        "network",
        "temperature",
        "load",
    ] {
        row.insert(key.to_owned(), Value::Null);
    }
    row.insert("node".to_owned(), json!(agent.node));
    row.insert("parent".to_owned(), json!(""));
    row.insert("state".to_owned(), json!("up"));
    row.insert("version".to_owned(), json!(agent.version));
    row.insert("is_parent".to_owned(), json!(false));
    row.insert("outliers".to_owned(), json!([]));
    row.insert("problem".to_owned(), json!(""));
    Value::Object(row)
}

/// The shape of the tree and its problems.
pub(super) async fn tree(
    Extension(context): SharedContext,
    RequestTree(tree): RequestTree,
) -> Response {
    let shape = match &tree {
        Some(access) => {
            access.record.expect([context.agent.node.as_str()]);
            access.tree.tree_json()
        }
        None => {
            let node = &context.agent.node;
            let mut fields = context.agent.status_source.extra_fields();
            let parents = fields.get_mut("tree").map(|tree| tree["parents"].take());
            json!({
                "node": node,
                "accepts": null,
                "nodes": 1,
                "up": 1,
                "levels": 1,
                "tree": {"node": node, "state": "up", "children": []},
                "problems": [],
                "parents": parents.unwrap_or_else(|| json!([])),
            })
        }
    };
    let headers = [(header::CACHE_CONTROL, "no-store")];
    let response = json_response(StatusCode::OK, JSON, shape.to_string());
    (headers, response).into_response()
}
