//! A TCP connection that counts its bytes, for tonic.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::transport::Uri;
use tower_service::Service;

/// The bytes that children exchanged with their parent, without the headers of TCP and IP.
#[derive(Debug, Default)]
pub struct WireBytes {
    pub up: AtomicU64,
    pub down: AtomicU64,
}

/// Connects to one address, whatever the URI is.
#[derive(Debug, Clone)]
pub(crate) struct CountingConnector {
    pub address: SocketAddr,
    pub bytes: Arc<WireBytes>,
}

#[derive(Debug)]
pub(crate) struct MeteredConnection {
    stream: TcpStream,
    bytes: Arc<WireBytes>,
}

impl Service<Uri> for CountingConnector {
    type Response = TokioIo<MeteredConnection>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let CountingConnector { address, bytes } = self.clone();
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(MeteredConnection { stream, bytes }))
        })
    }
}

impl AsyncRead for MeteredConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let read = buffer.filled().len() - before;
        self.bytes.down.fetch_add(read as u64, Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for MeteredConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = polled {
            self.bytes.up.fetch_add(written as u64, Ordering::Relaxed);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
