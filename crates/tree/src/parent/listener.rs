//! Accepts the connections of children. A peer without valid credentials costs a connection, a
//! bounded handshake and a few counters: its token is checked before any message is decoded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Request, Response, header};
use pegel_credentials::parse_bearer;
use pegel_tree_protocol::{BoxFuture, ChildMessage};
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Status, Streaming, body::Body};

use super::Parent;
use super::child_stream::serve_child;
use crate::transport::{
    ATTACH_PATH, CountedStream, OUTGOING_MAX, PeerStream, respond_streaming, serve_http2,
};

/// Concurrent handshakes. Further peers wait in the kernel's queue.
const HANDSHAKES_MAX: usize = 64;
/// Connections beyond those of all children, for peers that are being refused.
const SPARE_CONNECTIONS: usize = 16;
/// The time for the handshake, and again for the first message.
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// The pause after a failure to accept: mostly too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The identity of a peer, as far as it is proven.
#[derive(Debug, Clone)]
pub(crate) struct ChildPeer {
    pub(crate) address: SocketAddr,
    /// The certificate; `None` if none is required.
    pub(crate) certificate: Option<CertificateDer<'static>>,
}

impl ChildPeer {
    pub(crate) fn host(&self) -> String {
        self.address.ip().to_string()
    }
}

/// Accepts children until the task is dropped.
pub(crate) async fn accept_children(parent: Arc<Parent>, listener: TcpListener) {
    let connections = parent.context.settings.children_max as usize + SPARE_CONNECTIONS;
    let connections = Arc::new(Semaphore::new(connections));
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    loop {
        let Ok(handshake) = handshakes.clone().acquire_owned().await else {
            return;
        };
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a child");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(connection) = connections.clone().try_acquire_owned() else {
            let host = address.ip().to_string();
            parent
                .context
                .problem(&host, "", "connections", "too many connections");
            continue;
        };
        let parent = parent.clone();
        tokio::spawn(async move {
            let _connection = connection;
            let prepared = timeout(HANDSHAKE_TIME, prepare(&parent, stream, address)).await;
            drop(handshake);
            let host = address.ip().to_string();
            match prepared {
                Ok(Ok((io, peer))) => serve_connection(parent, io, peer).await,
                Ok(Err(message)) => parent.context.problem(&host, "", "handshake", &message),
                Err(_) => parent.context.problem(&host, "", "handshake", "timed out"),
            }
        });
    }
}

/// Performs the TLS handshake, if there is one.
async fn prepare(
    parent: &Parent,
    stream: TcpStream,
    address: SocketAddr,
) -> Result<(Box<dyn PeerStream>, ChildPeer), String> {
    let _ = stream.set_nodelay(true);
    let stream = CountedStream::new(stream, parent.context.counts.clone());
    let credentials = parent.context.credentials();
    let Some(config) = &credentials.server else {
        let certificate = None;
        let peer = ChildPeer {
            address,
            certificate,
        };
        return Ok((Box::new(stream), peer));
    };
    let acceptor = TlsAcceptor::from(config.clone());
    let accepted = acceptor.accept(stream).await;
    let stream = accepted.map_err(|error| error.to_string())?;
    let (_, session) = stream.get_ref();
    if session.alpn_protocol() != Some(b"h2") {
        return Err("the peer does not speak HTTP/2".to_owned());
    }
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    let certificate = certificate.filter(|_| credentials.checks_names);
    let peer = ChildPeer {
        address,
        certificate: certificate.map(|certificate| certificate.clone().into_owned()),
    };
    Ok((Box::new(stream), peer))
}

async fn serve_connection(parent: Arc<Parent>, io: Box<dyn PeerStream>, peer: ChildPeer) {
    let is_attached = Arc::new(AtomicBool::new(false));
    let host = peer.host();
    let served = {
        let (parent, is_attached) = (parent.clone(), is_attached.clone());
        serve_http2(io, move |request| {
            respond(parent.clone(), peer.clone(), is_attached.clone(), request)
        })
    };
    let mut served = std::pin::pin!(served);
    tokio::select! {
        ended = &mut served => {
            if let Err(error) = ended {
                tracing::debug!(host, %error, "connection of a child ended");
            }
            return;
        }
        () = sleep(HANDSHAKE_TIME) => {}
    }
    if is_attached.load(Ordering::Relaxed) {
        if let Err(error) = served.await {
            tracing::debug!(host, %error, "connection of a child ended");
        }
    } else {
        let message = "the peer opened no stream";
        parent.context.problem(&host, "", "handshake", message);
    }
}

/// Checks path and token, and starts the stream.
async fn respond(
    parent: Arc<Parent>,
    peer: ChildPeer,
    is_attached: Arc<AtomicBool>,
    request: Request<Incoming>,
) -> Response<Body> {
    if request.uri().path() != ATTACH_PATH {
        return Status::unimplemented("no such method").into_http();
    }
    if let Some(token) = &parent.context.credentials().token {
        let mut values = request.headers().get_all(header::AUTHORIZATION).iter();
        let given = match (values.next(), values.next()) {
            (Some(value), None) => parse_bearer(value.as_bytes()),
            _ => None,
        };
        // Children with a certificate may do without a token.
        let has_certificate = peer.certificate.is_some();
        let is_valid = given.is_some_and(|given| token.matches(given));
        if !is_valid && (given.is_some() || !has_certificate) {
            let message = if given.is_some() {
                "invalid token"
            } else {
                "no token"
            };
            parent.context.problem(&peer.host(), "", "token", message);
            return Status::unauthenticated(message).into_http();
        }
    }
    is_attached.store(true, Ordering::Relaxed);
    respond_streaming(AttachService { parent, peer }, request).await
}

struct AttachService {
    parent: Arc<Parent>,
    peer: ChildPeer,
}

type OutgoingStream = Box<dyn Stream<Item = Result<Bytes, Status>> + Send + Unpin>;

impl tonic::server::StreamingService<ChildMessage> for AttachService {
    type Response = Bytes;
    type ResponseStream = OutgoingStream;
    type Future = BoxFuture<'static, Result<tonic::Response<OutgoingStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<ChildMessage>>) -> Self::Future {
        let (outgoing, queued) = mpsc::channel(OUTGOING_MAX);
        let (parent, peer) = (self.parent.clone(), self.peer.clone());
        tokio::spawn(serve_child(parent, peer, request.into_inner(), outgoing));
        let queued: OutgoingStream = Box::new(ReceiverStream::new(queued).map(Ok));
        Box::pin(async move { Ok(tonic::Response::new(queued)) })
    }
}
