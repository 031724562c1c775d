//! Messages over a socket that is open.

use std::time::Duration;

use connector::codec;
use connector::message::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::ControlError;

/// Bytes asked of the socket at once; a frame may be longer.
const CHUNK: usize = 64 << 10;

/// An idle side shows that it is there by a frame of no bytes, this often.
pub(crate) const BEAT: Duration = Duration::from_secs(1);

/// Beats in a row without a byte from the peer after which it counts as lost. Beats are
/// counted, not time: a process that was suspended does not take its own absence for the peer's.
const MISSED: u32 = 4;

/// The receiving half.
pub(crate) struct Inbound {
    socket: OwnedReadHalf,
    buffer: Vec<u8>,
    /// Reads that brought something.
    signs: u64,
}

impl Inbound {
    pub(crate) fn new(socket: OwnedReadHalf) -> Self {
        Self { socket, buffer: Vec::new(), signs: 0 }
    }

    /// The next message; `None` once the peer has closed the channel between two of them.
    pub(crate) async fn next(&mut self) -> Result<Option<Message>, ControlError> {
        let mut missed = 0;
        loop {
            let seen = self.signs;
            match timeout(BEAT, self.message()).await {
                Ok(message) => return message,
                Err(_) if self.signs != seen => missed = 0,
                Err(_) => missed += 1,
            }
            if missed == MISSED {
                return Err(ControlError::Silent);
            }
        }
    }

    /// May be dropped at any time: what has been read stays.
    async fn message(&mut self) -> Result<Option<Message>, ControlError> {
        loop {
            while self.buffer.starts_with(&codec::BEAT) {
                self.buffer.drain(..codec::BEAT.len());
            }
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
            self.signs += 1;
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

    /// Shows that this side is there.
    pub(crate) async fn beat(&mut self) -> Result<(), ControlError> {
        self.socket.write_all(&codec::BEAT).await?;
        Ok(())
    }
}
