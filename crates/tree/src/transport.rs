//! gRPC over connections that this crate makes itself: the path and codec of the one stream, the
//! HTTP/2 limits of both sides, and connections whose bytes are counted.
//!
//! Messages are encoded before they are queued: a request to a thousand children is encoded once.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use pegel_credentials::Token;
use pegel_tree_protocol::limits::MESSAGE_BYTES_MAX;
use pegel_tree_protocol::{ChildMessage, ParentMessage, check_message_elements};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Status, Streaming, body::Body};

use crate::figures::TreeCounts;

pub(crate) const ATTACH_PATH: &str = "/pegel.tree.v1.Tree/Attach";

/// How often a connection is checked, and how long a response may take.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// The headers of the one request have some hundred bytes, and a token at most 4 KiB.
const HEADER_BYTES_MAX: u32 = 16 << 10;
const STREAMS_MAX: u32 = 4;
/// The bytes in flight on one stream and on one connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 2 << 20;
/// Encoded messages that wait to be sent. Small: what waits is out of date soon.
pub(crate) const OUTGOING_MAX: usize = 256;

/// Sends encoded messages and receives messages of the type `M`.
pub(crate) struct MessageCodec<M>(PhantomData<fn() -> M>);

impl<M> MessageCodec<M> {
    pub(crate) fn new() -> MessageCodec<M> {
        MessageCodec(PhantomData)
    }
}

impl<M: Message + Default + 'static> Codec for MessageCodec<M> {
    type Encode = Bytes;
    type Decode = M;
    type Encoder = EncodedMessages;
    type Decoder = MessageDecoder<M>;

    fn encoder(&mut self) -> EncodedMessages {
        EncodedMessages
    }

    fn decoder(&mut self) -> MessageDecoder<M> {
        MessageDecoder(PhantomData)
    }
}

#[derive(Debug)]
pub(crate) struct EncodedMessages;

impl Encoder for EncodedMessages {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put(out, item);
        Ok(())
    }
}

pub(crate) struct MessageDecoder<M>(PhantomData<fn() -> M>);

impl<M: Message + Default> Decoder for MessageDecoder<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        // Small elements of lists take far more memory than bytes.
        if let Err(fault) = check_message_elements(bytes.chunk()) {
            return Err(Status::invalid_argument(fault.to_string()));
        }
        let decoded = M::decode(bytes);
        decoded
            .map(Some)
            .map_err(|error| Status::invalid_argument(error.to_string()))
    }
}

/// A connection: plain or TLS.
pub(crate) trait PeerStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> PeerStream for T {}

/// Counts the bytes of a connection.
pub(crate) struct CountedStream<S> {
    inner: S,
    counts: Arc<TreeCounts>,
}

impl<S> CountedStream<S> {
    pub(crate) fn new(inner: S, counts: Arc<TreeCounts>) -> CountedStream<S> {
        CountedStream { inner, counts }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        let read = buffer.filled().len() - before;
        self.counts.received_bytes.add(read as u64);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = polled {
            self.counts.sent_bytes.add(written as u64);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// Serves HTTP/2 on a connection of a child until it ends. After `finish` what is queued is sent,
/// for at most `finish_time`.
pub(crate) async fn serve_http2<F, R>(
    io: Box<dyn PeerStream>,
    respond: F,
    finish: impl Future<Output = ()> + Send,
    finish_time: Duration,
) -> hyper::Result<()>
where
    F: Fn(Request<Incoming>) -> R + Send + 'static,
    R: Future<Output = Response<Body>> + Send + 'static,
{
    let service = hyper::service::service_fn(move |request| {
        let response = respond(request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .serve_connection(TokioIo::new(io), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = &mut connection => return ended,
        () = finish => connection.as_mut().graceful_shutdown(),
    }
    let finished = tokio::time::timeout(finish_time, connection).await;
    finished.unwrap_or(Ok(()))
}

/// Passes the stream of a child to `service`.
pub(crate) async fn respond_streaming<S>(service: S, request: Request<Incoming>) -> Response<Body>
where
    S: tonic::server::StreamingService<ChildMessage, Response = Bytes> + Send,
    S::ResponseStream: Send + 'static,
{
    tonic::server::Grpc::new(MessageCodec::<ChildMessage>::new())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .streaming(service, request)
        .await
}

/// The stream to a parent. Dropping it closes the connection.
pub(crate) struct ParentStream {
    pub(crate) incoming: Streaming<ParentMessage>,
    pub(crate) outgoing: mpsc::Sender<Bytes>,
    connection: JoinHandle<()>,
}

impl Drop for ParentStream {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl ParentStream {
    /// Ends the stream from this side: what is queued is still sent.
    pub(crate) async fn finish(mut self, time: Duration) {
        let (closed, _) = mpsc::channel(1);
        self.outgoing = closed;
        let _ = tokio::time::timeout(time, async {
            while let Ok(Some(_)) = self.incoming.message().await {}
        })
        .await;
    }
}

/// Opens the stream to a parent, over a connection to it.
pub(crate) async fn open_parent_stream(
    io: Box<dyn PeerStream>,
    origin: Uri,
    token: Option<&Token>,
    hello: Bytes,
) -> Result<ParentStream, Status> {
    let failed = |error: hyper::Error| Status::unavailable(error.to_string());
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADER_BYTES_MAX)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .handshake(TokioIo::new(io))
        .await
        .map_err(failed)?;
    let connection = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to a parent ended");
        }
    });
    let mut grpc = tonic::client::Grpc::with_origin(RequestSender(sender), origin)
        .max_decoding_message_size(MESSAGE_BYTES_MAX);
    let (outgoing, queued) = mpsc::channel(OUTGOING_MAX);
    // The queue is empty.
    let _ = outgoing.try_send(hello);
    let mut request = tonic::Request::new(ReceiverStream::new(queued));
    if let Some(token) = token {
        let value = format!("Bearer {}", token.reveal()).parse();
        let value = value.map_err(|_| Status::unauthenticated("invalid token"))?;
        request.metadata_mut().insert("authorization", value);
    }
    let opened = async {
        let ready = grpc.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static(ATTACH_PATH);
        let codec = MessageCodec::<ParentMessage>::new();
        grpc.streaming(request, path, codec).await
    };
    match opened.await {
        Ok(response) => Ok(ParentStream {
            incoming: response.into_inner(),
            outgoing,
            connection,
        }),
        Err(status) => {
            connection.abort();
            Err(status)
        }
    }
}

/// The client side of an HTTP/2 connection.
struct RequestSender(SendRequest<Body>);

impl tower_service::Service<Request<Body>> for RequestSender {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
