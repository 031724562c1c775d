//! Messages over a socket that is open.

use connector::codec;
use connector::message::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::ControlError;

/// Bytes asked of the socket at once; a frame may be longer.
const CHUNK: usize = 64 << 10;

/// The receiving half.
pub(crate) struct Inbound {
    socket: OwnedReadHalf,
    buffer: Vec<u8>,
}

impl Inbound {
    pub(crate) fn new(socket: OwnedReadHalf) -> Self {
        Self { socket, buffer: Vec::new() }
    }

    /// The next message; `None` once the peer has closed the channel between two of them.
    pub(crate) async fn next(&mut self) -> Result<Option<Message>, ControlError> {
        loop {
            if let Some((message, used)) = codec::decode(&self.buffer)? {
                self.buffer.drain(..used);
                return Ok(Some(message));
            }
            self.buffer.reserve(CHUNK);
            if self.socket.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into())
                };
            }
        }
    }
}

/// The sending half.
pub(crate) struct Outbound {
    socket: OwnedWriteHalf,
}

impl Outbound {
    pub(crate) fn new(socket: OwnedWriteHalf) -> Self {
        Self { socket }
    }

    pub(crate) async fn send(&mut self, message: &Message) -> Result<(), ControlError> {
        self.socket.write_all(&codec::encode(message)?).await?;
        Ok(())
    }
}
