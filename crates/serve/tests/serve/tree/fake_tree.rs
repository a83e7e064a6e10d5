//! A tree whose children are servers of the same process, or faulty.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pegel_tree_protocol::{
    BoxFuture, ChildAnswer, FanOut, LocalServer, NodeOverview, NodeRow, NodeStatus, NodeTree,
    TreeCallError, TreeRequest, TreeResponse,
};
use serde_json::{Value, json};

/// How a child responds.
#[derive(Clone)]
pub(crate) enum FakeResponses {
    /// As the server of an agent.
    Server(Arc<dyn LocalServer>),
    /// Never.
    Hung,
    /// With an error.
    Failing,
    /// With these bytes.
    Fixed(Bytes),
}

pub(crate) struct FakeChild {
    pub name: &'static str,
    /// The nodes below it; none: it is a leaf.
    pub below: Vec<&'static str>,
    pub responses: FakeResponses,
}

pub(crate) struct FakeTree {
    pub own: &'static str,
    pub children: Vec<FakeChild>,
}

fn row(node: &str, parent: &str, is_parent: bool) -> NodeRow {
    NodeRow {
        node: node.into(),
        parent: parent.into(),
        status: NodeStatus::Up,
        lag_ms: Some(12),
        clock_offset_ms: None,
        version: "1.2.3".into(),
        is_parent,
        overview: NodeOverview {
            busy: 3.1,
            gpu: f32::NAN,
            ..NodeOverview::default()
        },
        outliers: vec![("busy", 97.0, 12.0)],
        problem: String::new(),
    }
}

impl FakeChild {
    fn error(&self) -> TreeCallError {
        TreeCallError::TimedOut(self.name.into())
    }

    async fn respond(&self, request: TreeRequest) -> Result<TreeResponse, TreeCallError> {
        match &self.responses {
            FakeResponses::Server(server) => Ok(server.respond(request).await),
            FakeResponses::Hung => {
                tokio::time::sleep(request.deadline).await;
                Err(self.error())
            }
            FakeResponses::Failing => Err(TreeCallError::Failed {
                node: self.name.into(),
                message: "broken".into(),
            }),
            FakeResponses::Fixed(_) => Err(self.error()),
        }
    }

    async fn complete(&self, request: TreeRequest) -> Result<(u16, Bytes), TreeCallError> {
        if let FakeResponses::Fixed(bytes) = &self.responses {
            return Ok((200, bytes.clone()));
        }
        let mut response = self.respond(request).await?;
        let mut body = Vec::new();
        while let Some(part) = response.body.next_part().await {
            body.extend_from_slice(&part?);
        }
        Ok((response.status, body.into()))
    }
}

impl NodeTree for FakeTree {
    fn tree_json(&self) -> Value {
        json!({"node": self.own, "nodes": self.nodes().len()})
    }

    fn nodes(&self) -> Vec<NodeRow> {
        let mut rows = vec![row(self.own, "", true)];
        for child in &self.children {
            rows.push(row(child.name, self.own, !child.below.is_empty()));
            rows.extend(child.below.iter().map(|node| row(node, child.name, false)));
        }
        rows.sort_by(|a, b| a.node.cmp(&b.node));
        rows
    }

    fn request_node(
        &self,
        node: &str,
        request: TreeRequest,
    ) -> BoxFuture<'_, Result<TreeResponse, TreeCallError>> {
        let child = self.children.iter().find(|child| child.name == node);
        let unknown = TreeCallError::UnknownNode(node.to_owned());
        Box::pin(async move {
            let child = child.ok_or(unknown)?;
            // A hung node must not hang a test for long.
            let request = TreeRequest {
                deadline: request.deadline.min(Duration::from_millis(200)),
                ..request
            };
            child.respond(request).await
        })
    }

    fn fan_out(
        &self,
        nodes: &[String],
        request: TreeRequest,
        bytes_max: usize,
    ) -> BoxFuture<'_, FanOut> {
        let nodes = nodes.to_vec();
        Box::pin(async move {
            let mut responses = FanOut::default();
            for child in &self.children {
                let covers =
                    |node: &String| *node == *child.name || child.below.contains(&node.as_str());
                if !nodes.is_empty() && !nodes.iter().any(covers) {
                    continue;
                }
                // One after the other: only one of them hangs.
                let request = TreeRequest {
                    deadline: request.deadline.min(Duration::from_millis(200)),
                    ..request.clone()
                };
                match child.complete(request).await {
                    Ok((_, body)) if body.len() > bytes_max => {
                        let (node, limit) = (child.name.into(), bytes_max);
                        let error = TreeCallError::TooLarge { node, limit };
                        responses.failed.push((error, vec![child.name.into()]));
                    }
                    Ok((status, body)) => responses.answers.push(ChildAnswer {
                        child: child.name.into(),
                        is_parent: !child.below.is_empty(),
                        status,
                        body,
                    }),
                    Err(error) => {
                        let names = child.below.iter().chain([&child.name]);
                        let names = names.map(|name| (*name).to_owned()).collect();
                        responses.failed.push((error, names));
                    }
                }
            }
            responses
        })
    }
}
