use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{RecvFlags, recv};

use super::frame::{FRAME_LEN, Frame, ToReader};
use super::link::{broken, hung_up, lost};
use super::stream::Stream;
use super::wire::{Pieces, Portion};
use crate::TransferError;

/// One stream of a source, and how far it has been read.
pub(super) struct Receiver {
    stream: Arc<Stream>,
    frame: Frame,
    /// Bytes of the frame that are there.
    have: usize,
}

/// What a source has said, as far as it has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// No whole frame.
    Nothing,
    /// A frame, but not all the bytes that belong to it.
    Part,
    /// A frame and what belongs to it.
    Whole,
}

impl Receiver {
    pub(super) fn new(stream: Arc<Stream>) -> Self {
        Self { stream, frame: [0; FRAME_LEN], have: 0 }
    }

    /// Whether a frame has been read that nobody has taken.
    pub(super) fn has_frame(&self) -> bool {
        self.have == FRAME_LEN
    }

    /// Takes the next frame, waiting for it. Each call on the socket that brought something counts
    /// as a sign of life.
    pub(super) fn frame(&mut self, life: &AtomicU64) -> Result<ToReader, TransferError> {
        while !self.has_frame() {
            match (&*self.stream).read(&mut self.frame[self.have..]) {
                Ok(0) => return Err(hung_up()),
                Ok(len) => self.have += len,
                // Nothing whole came: no sign of life.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(lost(&error)),
            }
            life.fetch_add(1, Ordering::Relaxed);
        }
        self.have = 0;
        decoded(&self.frame)
    }

    /// Receives the bytes of a portion, of which the frame before it spoke.
    pub(super) fn portion(
        &mut self,
        pieces: &mut Pieces,
        portion: Portion<'_>,
        life: &AtomicU64,
    ) -> Result<(), TransferError> {
        let next = self.stream.receive(pieces, portion, &mut self.frame, life);
        self.have = next.map_err(|error| lost(&error))?;
        Ok(())
    }

    /// Reads what there is of the next frame, and says whether to take it means to wait. For a
    /// stream without encryption.
    pub(super) fn look(&mut self, life: &AtomicU64) -> Result<Came, TransferError> {
        while !self.has_frame() {
            let rest = &mut self.frame[self.have..];
            match recv(self.stream.socket(), rest, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(hung_up()),
                Ok((_, len)) => self.have += len,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(Came::Nothing),
                Err(why) => return Err(lost(&why.into())),
            }
            life.fetch_add(1, Ordering::Relaxed);
        }
        let ToReader::Portion { len, .. } = decoded(&self.frame)? else { return Ok(Came::Whole) };
        let there = ioctl_fionread(self.stream.socket()).map_err(|why| lost(&why.into()))?;
        Ok(if there < u64::from(len) { Came::Part } else { Came::Whole })
    }
}

fn decoded(frame: &Frame) -> Result<ToReader, TransferError> {
    ToReader::decode(frame).ok_or(broken("an unknown frame"))
}
