//! Accepts connections within the connection limit. The server runs one [`accept_all`] task per
//! listener. Each client is identified before it gets a permit, so that unknown clients cannot
//! exhaust the limit. Refused clients are counted and, on a plaintext listener, sent the reason.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::api_error::ApiError;
use crate::connection;
use crate::connection_limit::{ConnectionLimit, LimitReached};
use crate::guard::{ConnectionInfo, Guard, PeerIdentity};
use crate::refusals::ClientRefusal;
use crate::server_context::{ServerContext, ShutdownStage};
use crate::tls;

/// Pause after accept() failed for lack of descriptors or memory; retrying at once would only burn
/// CPU.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How long a refused client has to read the reason.
const REFUSAL_TIME: Duration = Duration::from_millis(500);
/// Minimum interval between warnings about failed accepts; every failure is counted.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

pub(crate) trait Listener: Send + Sync + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    const FULL: ClientRefusal;

    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Identifies the client. Fails if the client has already closed the connection.
    fn identify(&self, stream: &Self::Stream, guard: &Guard) -> io::Result<ConnectionInfo>;

    /// Whether a refused client can be sent the reason without a handshake.
    fn is_plaintext(&self) -> bool;

    /// Serves a connection to its end.
    fn serve(
        self: Arc<Self>,
        stream: Self::Stream,
        info: ConnectionInfo,
        context: Arc<ServerContext>,
    ) -> impl Future<Output = ()> + Send;
}

/// A listening TCP address.
#[derive(Debug)]
pub(crate) struct TcpAcceptor {
    pub listener: TcpListener,
    /// Whether clients must use TLS.
    pub is_tls: bool,
    /// Whether clients must present the token, whichever user they are.
    pub is_forwarded: bool,
}

impl Listener for TcpAcceptor {
    type Stream = TcpStream;
    const FULL: ClientRefusal = ClientRefusal::Connections;

    async fn accept(&self) -> io::Result<Self::Stream> {
        let (stream, _) = self.listener.accept().await?;
        // Streamed events are small and must not be delayed.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    fn identify(&self, stream: &Self::Stream, guard: &Guard) -> io::Result<ConnectionInfo> {
        let mut info = guard.identify_tcp(stream)?;
        if self.is_forwarded {
            info.peer = PeerIdentity::Forwarded;
        }
        Ok(info)
    }

    fn is_plaintext(&self) -> bool {
        !self.is_tls
    }

    async fn serve(
        self: Arc<Self>,
        stream: Self::Stream,
        mut info: ConnectionInfo,
        context: Arc<ServerContext>,
    ) {
        if !self.is_tls {
            return connection::serve(stream, info, None, context).await;
        }
        // A TLS listener exists only if a certificate was loaded.
        let Some(config) = context.guard.tls() else {
            return;
        };
        if let Some(stream) = tls::accept_tls(stream, config, &context).await {
            if let PeerIdentity::Remote { certified, .. } = &mut info.peer {
                *certified = tls::has_client_certificate(&stream);
            }
            info.is_tls = true;
            connection::serve(stream, info, None, context).await;
        }
    }
}

impl Listener for UnixListener {
    type Stream = tokio::net::UnixStream;
    const FULL: ClientRefusal = ClientRefusal::SocketConnections;

    async fn accept(&self) -> io::Result<Self::Stream> {
        UnixListener::accept(self).await.map(|(stream, _)| stream)
    }

    fn identify(&self, stream: &Self::Stream, guard: &Guard) -> io::Result<ConnectionInfo> {
        Ok(guard.identify_unix(stream))
    }

    fn is_plaintext(&self) -> bool {
        true
    }

    async fn serve(
        self: Arc<Self>,
        stream: Self::Stream,
        info: ConnectionInfo,
        context: Arc<ServerContext>,
    ) {
        let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
        let pid = pid.and_then(|pid| u32::try_from(pid).ok());
        connection::serve(stream, info, pid, context).await;
    }
}

/// Accepts connections until the server stops. Each connection holds one permit until it ends.
pub(crate) async fn accept_all<L: Listener>(
    listener: L,
    limit: ConnectionLimit,
    context: Arc<ServerContext>,
) {
    let listener = Arc::new(listener);
    let refusals = Arc::new(Semaphore::new(context.settings.refusals_max));
    let mut stage = context.stage.clone();
    let mut warned: Option<Instant> = None;
    while let Some(accepted) = unless_stopped(listener.accept(), &mut stage).await {
        let stream = match accepted {
            Ok(stream) => stream,
            // Client closed before accept(); retry at once.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                context.refusals.count(ClientRefusal::Accept);
                if warned.is_none_or(|warned| warned.elapsed() >= WARN_INTERVAL) {
                    warned = Some(Instant::now());
                    tracing::warn!(%error, "cannot accept a connection");
                }
                sleep(ACCEPT_RETRY_PAUSE).await;
                continue;
            }
        };
        // Not on the connection's own task: unknown clients could otherwise take every permit
        // before they are identified. The kernel responds within microseconds.
        let Ok(info) = listener.identify(&stream, &context.guard) else {
            continue;
        };
        let rights = context.guard.rights_of(info.peer);
        let refusal = match limit.acquire(rights, &info.standing) {
            Ok(permit) => {
                let listener = listener.clone();
                let context = context.clone();
                tokio::spawn(async move {
                    let serving = listener.serve(stream, info.clone(), context.clone());
                    tokio::select! {
                        biased;
                        () = serving => {}
                        // Closed in favour of a newer connection.
                        () = info.standing.displaced() => {
                            let sender = info.peer.sender_name();
                            context.count_refusal(&sender, ClientRefusal::UnknownConnections);
                        }
                    }
                    drop(permit);
                });
                continue;
            }
            Err(LimitReached::All) => L::FULL,
            Err(LimitReached::ForUnknown) => ClientRefusal::UnknownConnections,
        };
        context.count_refusal(&info.peer.sender_name(), refusal);
        if listener.is_plaintext()
            && let Ok(permit) = refusals.clone().try_acquire_owned()
        {
            tokio::spawn(async move {
                refuse_connection(stream, ApiError::too_many_connections()).await;
                drop(permit);
            });
        }
    }
}

/// Returns `None` once the server stops.
pub(crate) async fn unless_stopped<T>(
    future: impl Future<Output = T>,
    stage: &mut watch::Receiver<ShutdownStage>,
) -> Option<T> {
    tokio::select! {
        biased;
        _ = stage.wait_for(|stage| *stage > ShutdownStage::Serving) => None,
        output = future => Some(output),
    }
}

/// Sends the reason and closes. Pending input is read first: closing a socket with unread bytes
/// resets the connection, and the client would not see the reason.
pub(crate) async fn refuse_connection<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    reason: ApiError,
) {
    let _ = timeout(REFUSAL_TIME, async {
        stream.write_all(reason.to_http().as_bytes()).await?;
        let _ = stream.shutdown().await;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    })
    .await;
}
