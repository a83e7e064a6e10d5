//! One stream to a parent, message by message.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::http::uri::PathAndQuery;
use pegel_tree_protocol::child_message::Kind as FromChild;
use pegel_tree_protocol::parent_message::Kind as FromParent;
use pegel_tree_protocol::{ChildMessage, Hello, ParentMessage};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use tonic::transport::Endpoint;
use tonic::{Request, Status, Streaming};

use crate::WireBytes;
use crate::child_codec::ChildCodec;
use crate::counting_connector::CountingConnector;

/// Messages that are queued before the sender waits: a parent that does not read is noticed soon.
const QUEUE_LEN: usize = 16;

/// A connection as a child, over loopback without TLS.
#[derive(Debug)]
pub struct ScriptedChild {
    outgoing: mpsc::Sender<ChildMessage>,
    incoming: Streaming<ParentMessage>,
}

/// Returns the greeting of a child that starts now. The instance is derived from the name.
pub fn hello(node: &str) -> Hello {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let mut instance = [0_u8; 16];
    for (index, byte) in node.bytes().enumerate() {
        instance[index % 16] = byte.wrapping_add(instance[index % 16].rotate_left(3));
    }
    Hello {
        protocol: 1,
        node: node.to_owned(),
        instance: instance.to_vec().into(),
        epoch: since.as_nanos() as u64,
        started_ms: since.as_millis() as i64,
        version: "0.0.0-simulated".to_owned(),
        is_parent: false,
    }
}

impl ScriptedChild {
    /// Connects and sends the first message. A parent may respond only after it.
    pub async fn connect(
        address: SocketAddr,
        token: Option<&str>,
        first: FromChild,
    ) -> Result<ScriptedChild, Status> {
        ScriptedChild::connect_counted(address, token, first, Arc::default()).await
    }

    /// Like [`ScriptedChild::connect`]; adds the bytes of the connection to `bytes`.
    pub async fn connect_counted(
        address: SocketAddr,
        token: Option<&str>,
        first: FromChild,
        bytes: Arc<WireBytes>,
    ) -> Result<ScriptedChild, Status> {
        let unavailable =
            |error: tonic::transport::Error| Status::unavailable(format!("{error:?}"));
        let endpoint = Endpoint::try_from(format!("http://{address}")).map_err(unavailable)?;
        let channel = endpoint
            .connect_timeout(Duration::from_secs(20))
            .connect_with_connector(CountingConnector { address, bytes })
            .await
            .map_err(unavailable)?;
        let (outgoing, messages) = mpsc::channel(QUEUE_LEN);
        let mut request = Request::new(ReceiverStream::new(messages));
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse();
            let value = value.map_err(|_| Status::internal("the token is not ASCII"))?;
            request.metadata_mut().insert("authorization", value);
        }
        let first = ChildMessage { kind: Some(first) };
        let _ = outgoing.send(first).await;
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.map_err(unavailable)?;
        let path = PathAndQuery::from_static("/pegel.tree.v1.Tree/Attach");
        let response = client.streaming(request, path, ChildCodec).await?;
        Ok(ScriptedChild {
            outgoing,
            incoming: response.into_inner(),
        })
    }

    /// Queues a message; false if the parent has closed the stream.
    pub async fn send(&self, message: FromChild) -> bool {
        let message = ChildMessage {
            kind: Some(message),
        };
        self.outgoing.send(message).await.is_ok()
    }

    /// Returns the next message of the parent; None at the end of the stream.
    pub async fn receive(&mut self) -> Result<Option<FromParent>, Status> {
        loop {
            match self.incoming.message().await? {
                // A kind of message that this version does not know.
                Some(ParentMessage { kind: None }) => {}
                Some(ParentMessage { kind }) => return Ok(kind),
                None => return Ok(None),
            }
        }
    }

    /// Splits the connection, to send and receive in different tasks.
    pub fn split(self) -> (mpsc::Sender<ChildMessage>, Streaming<ParentMessage>) {
        (self.outgoing, self.incoming)
    }
}
