//! Messages over a socket that is open.

use std::io::{self, ErrorKind};
use std::time::Duration;

use connector::codec;
use connector::message::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::ControlError;
use crate::greet::{Reading, Writing};

/// Bytes asked of the socket at once; a frame may be longer.
const CHUNK: usize = 64 << 10;

/// An idle side shows that it is there by a frame of no bytes, this often.
pub(crate) const BEAT: Duration = Duration::from_secs(1);

/// Beats in a row without a byte from the peer after which it counts as lost. Beats are
/// counted, not time: a process that was suspended does not take its own absence for the peer's.
const MISSED: u32 = 4;

/// A channel that is open may be silent for this long before it is used.
const UNUSED: Duration = Duration::from_secs(60);

/// The receiving half.
pub(crate) struct Inbound {
    socket: Reading,
    buffer: Vec<u8>,
    /// Reads that brought something.
    signs: u64,
}

impl Inbound {
    pub(crate) fn new(socket: Reading) -> Self {
        Self { socket, buffer: Vec::new(), signs: 0 }
    }

    /// Waits for the first byte, which is kept; `false` if the peer hangs up instead, or is
    /// silent for longer than it may take to greet all other ranks of the same engine.
    pub(crate) async fn begins(&mut self) -> bool {
        let first = timeout(UNUSED, self.socket.read_buf(&mut self.buffer)).await;
        matches!(first, Ok(Ok(1..)))
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
            match self.socket.read_buf(&mut self.buffer).await {
                Ok(1..) => self.signs += 1,
                Ok(0) => return self.end(ErrorKind::UnexpectedEof.into()),
                // Nobody says a last word under TLS either: no message is one.
                Err(why) if why.kind() == ErrorKind::UnexpectedEof => return self.end(why),
                Err(why) => return Err(why.into()),
            }
        }
    }

    /// What it means that nothing more comes.
    fn end(&self, cut_off: io::Error) -> Result<Option<Message>, ControlError> {
        if self.buffer.is_empty() { Ok(None) } else { Err(cut_off.into()) }
    }
}

/// The sending half.
pub(crate) struct Outbound {
    socket: Writing,
}

impl Outbound {
    pub(crate) fn new(socket: Writing) -> Self {
        Self { socket }
    }

    pub(crate) async fn send(&mut self, message: &Message) -> Result<(), ControlError> {
        self.write(&codec::encode(message)?).await
    }

    /// Shows that this side is there.
    pub(crate) async fn beat(&mut self) -> Result<(), ControlError> {
        self.write(&codec::BEAT).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        self.socket.write_all(bytes).await?;
        self.socket.flush().await?;
        Ok(())
    }
}
