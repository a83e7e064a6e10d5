//! The stream of one child at its parent, message by message.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;

use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pegel_tree_protocol::child_message::Kind as FromChild;
use pegel_tree_protocol::parent_message::Kind as FromParent;
use pegel_tree_protocol::{ChildMessage, ParentMessage, Welcome};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::{Status, Streaming};

use crate::child_codec::ParentCodec;

/// Messages that are queued before the sender waits.
const QUEUE_LEN: usize = 16;

/// The stream of a child, over loopback without TLS.
#[derive(Debug)]
pub struct ScriptedParent {
    outgoing: mpsc::Sender<ParentMessage>,
    incoming: Streaming<ChildMessage>,
}

/// Returns the answer of a parent that accepts a child.
pub fn welcome(node: &str) -> Welcome {
    Welcome {
        protocol: 1,
        node: node.to_owned(),
        interval_ms: 1000,
        tick_credit: 16,
        path: vec![node.to_owned()],
    }
}

impl ScriptedParent {
    /// Waits for the next child that opens a stream. Its first message is not read yet.
    pub async fn accept(listener: &TcpListener) -> std::io::Result<ScriptedParent> {
        loop {
            let (stream, _) = listener.accept().await?;
            let (opened, mut streams) = mpsc::channel(1);
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let opened = opened.clone();
                async move { Ok::<Response<Body>, Infallible>(respond(opened, request).await) }
            });
            tokio::spawn(async move {
                let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
            if let Some(stream) = streams.recv().await {
                return Ok(stream);
            }
        }
    }

    /// Queues a message; false if the child has closed the stream.
    pub async fn send(&self, message: FromParent) -> bool {
        let message = ParentMessage {
            kind: Some(message),
        };
        self.outgoing.send(message).await.is_ok()
    }

    /// Returns the next message of the child; None at the end of the stream.
    pub async fn receive(&mut self) -> Result<Option<FromChild>, Status> {
        loop {
            match self.incoming.message().await? {
                Some(ChildMessage { kind: None }) => {}
                Some(ChildMessage { kind }) => return Ok(kind),
                None => return Ok(None),
            }
        }
    }
}

async fn respond(
    opened: mpsc::Sender<ScriptedParent>,
    request: Request<Incoming>,
) -> Response<Body> {
    tonic::server::Grpc::new(ParentCodec)
        .streaming(ScriptedService(opened), request)
        .await
}

struct ScriptedService(mpsc::Sender<ScriptedParent>);

type ScriptedStream = Box<dyn Stream<Item = Result<ParentMessage, Status>> + Send + Unpin>;
type Opened = Result<tonic::Response<ScriptedStream>, Status>;

impl tonic::server::StreamingService<ChildMessage> for ScriptedService {
    type Response = ParentMessage;
    type ResponseStream = ScriptedStream;
    type Future = Pin<Box<dyn Future<Output = Opened> + Send>>;

    fn call(&mut self, request: tonic::Request<Streaming<ChildMessage>>) -> Self::Future {
        let (outgoing, queued) = mpsc::channel(QUEUE_LEN);
        let stream = ScriptedParent {
            outgoing,
            incoming: request.into_inner(),
        };
        let opened = self.0.clone();
        Box::pin(async move {
            let _ = opened.send(stream).await;
            let queued: ScriptedStream = Box::new(ReceiverStream::new(queued).map(Ok));
            Ok(tonic::Response::new(queued))
        })
    }
}
