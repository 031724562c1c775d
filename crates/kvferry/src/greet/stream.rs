use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// A socket whose peer is known, and what encrypts on it, if anything does.
pub enum Stream {
    /// Nothing does.
    Plain(TcpStream),
    /// TLS, which holds what was written until it is flushed.
    Tls(Box<TlsStream<TcpStream>>),
}

/// The receiving half of a stream.
pub type Reading = Box<dyn AsyncRead + Send + Unpin>;

/// The sending half of a stream.
pub type Writing = Box<dyn AsyncWrite + Send + Unpin>;

/// What both kinds are.
trait Both: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Both for S {}

impl Stream {
    /// Where the other end is.
    ///
    /// # Errors
    /// The system's, where the connection is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Plain(socket) => socket.peer_addr(),
            Self::Tls(stream) => stream.get_ref().0.peer_addr(),
        }
    }

    /// Both halves, for a task each.
    #[must_use]
    pub fn into_split(self) -> (Reading, Writing) {
        match self {
            Self::Plain(socket) => {
                let (read, write) = socket.into_split();
                (Box::new(read), Box::new(write))
            }
            Self::Tls(stream) => {
                let (read, write) = tokio::io::split(*stream);
                (Box::new(read), Box::new(write))
            }
        }
    }

    fn both(self: Pin<&mut Self>) -> Pin<&mut dyn Both> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket),
            Self::Tls(stream) => Pin::new(&mut **stream),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.both().poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.both().poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.both().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.both().poll_shutdown(cx)
    }
}
