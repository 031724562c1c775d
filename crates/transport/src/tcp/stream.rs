use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use super::seal::Seal;
use super::wire::{self, Pieces, Portion};

/// One socket of a connection, and what encrypts on it, if anything does.
pub(super) struct Stream {
    socket: TcpStream,
    seal: OnceLock<Box<Seal>>,
}

impl Stream {
    /// Plain, as every stream begins.
    pub(super) fn new(socket: TcpStream) -> Self {
        Self { socket, seal: OnceLock::new() }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(super) fn seal(&self) -> Option<&Seal> {
        self.seal.get().map(Box::as_ref)
    }

    /// From now on everything is encrypted.
    pub(super) fn sealed(&self, seal: Seal) -> &Seal {
        self.seal.get_or_init(|| Box::new(seal))
    }

    /// Sends `head`, the portion if there is one, and `tail`. Where there is no room for them, it sleeps as long as
    /// it takes, or, on a stream without encryption, calls `wait`.
    pub(super) fn send(
        &self,
        pieces: &mut Pieces,
        head: &[u8],
        portion: Option<Portion<'_>>,
        tail: &[u8],
        wait: Option<&mut dyn FnMut() -> io::Result<()>>,
    ) -> io::Result<()> {
        match self.seal() {
            None => wire::send(&self.socket, pieces, head, portion, tail, wait),
            Some(seal) => seal.send(&self.socket, head, portion, tail),
        }
    }

    /// Receives the portion, and perhaps some bytes of `next` that have followed it already,
    /// whose number is returned. Each call that brought something counts as a sign of life.
    pub(super) fn receive(
        &self,
        pieces: &mut Pieces,
        portion: Portion<'_>,
        next: &mut [u8],
        life: &AtomicU64,
    ) -> io::Result<usize> {
        match self.seal() {
            None => wire::receive(&self.socket, pieces, portion, next, life),
            Some(seal) => seal.receive(&self.socket, portion, life).map(|()| 0),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.seal() {
            None => (&self.socket).read(bytes),
            Some(seal) => seal.read(&self.socket, bytes),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.seal() {
            None => (&self.socket).write(bytes),
            Some(seal) => seal.write_all(&self.socket, bytes).map(|()| bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
