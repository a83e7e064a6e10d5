//! Accepts the connections of children. A peer without valid credentials costs a connection, a
//! bounded handshake and a few counters: its token is checked before any message is decoded. A
//! connection has one stream, and ends with it: a peer with credentials occupies no more places
//! than it has names.

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
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Status, Streaming, body::Body};

use super::Parent;
use super::child_stream::serve_child;
use super::unproven_connections::{UnprovenConnections, UnprovenPlace};
use crate::transport::{
    ATTACH_PATH, CountedStream, OUTGOING_MAX, PeerStream, respond_streaming, serve_http2,
};

/// The time for the handshake, again for the stream, and again for the first message.
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// How long the last messages of a stream may take.
const FINISH_TIME: Duration = Duration::from_secs(1);
/// How often a place is looked for if all are occupied. Further peers wait in the kernel's queue.
const PLACE_PAUSE: Duration = Duration::from_millis(20);
/// The pause after a failure to accept: mostly too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The identity of a peer, as far as it is proven.
#[derive(Debug, Clone)]
pub(crate) struct ChildPeer {
    pub(crate) address: SocketAddr,
    /// The certificate; `None` if none is required.
    pub(crate) certificate: Option<CertificateDer<'static>>,
    /// Why the peer may not attach, whatever it sends.
    pub(crate) refusal: Option<String>,
    pub(crate) stages: Arc<ConnectionStages>,
}

/// How far a connection has come.
#[derive(Debug, Default)]
pub(crate) struct ConnectionStages {
    /// A stream was opened with valid credentials.
    is_opened: AtomicBool,
    pub(crate) admitted: Notify,
    pub(crate) ended: Notify,
}

impl ChildPeer {
    pub(crate) fn host(&self) -> String {
        self.address.ip().to_string()
    }
}

/// Accepts children until the task is dropped.
pub(crate) async fn accept_children(parent: Arc<Parent>, listener: TcpListener) {
    let unproven = UnprovenConnections::new(parent.context.settings.unproven_max);
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a child");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let place = loop {
            match unproven.add(address.ip(), Instant::now()) {
                Some(place) => break place,
                None => sleep(PLACE_PAUSE).await,
            }
        };
        tokio::spawn(serve_peer(parent.clone(), stream, address, place));
    }
}

/// Serves a connection until it ends, or has to make room before a child is attached.
async fn serve_peer(
    parent: Arc<Parent>,
    stream: TcpStream,
    address: SocketAddr,
    place: UnprovenPlace,
) {
    let host = address.ip().to_string();
    let served = async {
        match timeout(HANDSHAKE_TIME, prepare(&parent, stream, address)).await {
            Ok(Ok((io, peer))) => serve_connection(&parent, io, peer, &place).await,
            Ok(Err(message)) => parent.context.problem(&host, "", "handshake", &message),
            Err(_) => parent.context.problem(&host, "", "handshake", "timed out"),
        }
    };
    tokio::select! {
        () = served => {}
        () = place.displaced() => {
            let message = "too many connections without a child";
            parent.context.problem(&host, "", "connections", message);
        }
    }
}

/// Performs the TLS handshake, if there is one.
async fn prepare(
    parent: &Parent,
    stream: TcpStream,
    address: SocketAddr,
) -> Result<(Box<dyn PeerStream>, ChildPeer), String> {
    let _ = stream.set_nodelay(true);
    let credentials = parent.context.credentials();
    let needs_user = credentials.token.is_none() && !credentials.checks_names;
    let refusal = needs_user.then(|| user_refusal(parent, &stream, address));
    let refusal = refusal.flatten();
    let stream = CountedStream::new(stream, parent.context.counts.clone());
    let Some(config) = &credentials.server else {
        let peer = ChildPeer {
            address,
            certificate: None,
            refusal,
            stages: Arc::default(),
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
        refusal,
        stages: Arc::default(),
    };
    Ok((Box::new(stream), peer))
}

/// Returns why a peer that has to prove nothing else may not attach: every user of this machine can
/// connect to a loopback address. `None`: it runs as the agent's user, root, or a user in
/// `allow_users`.
fn user_refusal(parent: &Parent, stream: &TcpStream, client: SocketAddr) -> Option<String> {
    let users = &parent.context.local_users;
    let server = stream.local_addr().ok();
    let owner = server.and_then(|server| users.owner_of(client, server));
    // A client can reset its connection and leave its port to another user. While our end is
    // connected, no other socket can have that port.
    let owner = owner.filter(|_| stream.peer_addr().is_ok());
    let peer = match owner {
        Some(uid) if users.admits(uid) => return None,
        Some(uid) => format!("a program of uid {uid}"),
        None => "a program whose user the kernel does not report".to_owned(),
    };
    Some(format!(
        "{peer} cannot attach without a token: set the same tree.token_file on both agents"
    ))
}

async fn serve_connection(
    parent: &Arc<Parent>,
    io: Box<dyn PeerStream>,
    peer: ChildPeer,
    place: &UnprovenPlace,
) {
    let stages = peer.stages.clone();
    let host = peer.host();
    let served = {
        let (parent, peer) = (parent.clone(), peer);
        let ended = stages.clone();
        serve_http2(
            io,
            move |request| respond(parent.clone(), peer.clone(), request),
            async move { ended.ended.notified().await },
            FINISH_TIME,
        )
    };
    let mut served = std::pin::pin!(served);
    let stages_in_time = async {
        sleep(HANDSHAKE_TIME).await;
        if stages.is_opened.load(Ordering::Relaxed) {
            sleep(HANDSHAKE_TIME).await;
        }
    };
    let log_end = |ended: hyper::Result<()>| {
        if let Err(error) = ended {
            tracing::debug!(host, %error, "connection of a child ended");
        }
    };
    tokio::select! {
        ended = &mut served => log_end(ended),
        () = stages.admitted.notified() => {
            place.free();
            log_end(served.await);
        }
        () = stages_in_time => {
            let message = "the peer opened no stream";
            parent.context.problem(&host, "", "handshake", message);
        }
    }
}

/// Checks path, user and token, and starts the stream.
async fn respond(
    parent: Arc<Parent>,
    peer: ChildPeer,
    request: Request<Incoming>,
) -> Response<Body> {
    if request.uri().path() != ATTACH_PATH {
        return Status::unimplemented("no such method").into_http();
    }
    if let Some(message) = &peer.refusal {
        parent.context.problem(&peer.host(), "", "user", message);
        return Status::permission_denied(message.as_str()).into_http();
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
    if peer.stages.is_opened.swap(true, Ordering::Relaxed) {
        return Status::already_exists("a connection has one stream").into_http();
    }
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
        let stages = self.peer.stages.clone();
        let served = serve_child(parent, peer, request.into_inner(), outgoing);
        tokio::spawn(async move {
            // Also if it panics, the connection ends.
            let _ = tokio::spawn(served).await;
            stages.ended.notify_one();
        });
        let queued: OutgoingStream = Box::new(ReceiverStream::new(queued).map(Ok));
        Box::pin(async move { Ok(tonic::Response::new(queued)) })
    }
}
