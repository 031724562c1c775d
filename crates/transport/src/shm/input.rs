use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::TransferError;
use crate::error::{broken, hung_up, lost};
use crate::tcp::frame::{FRAME_LEN, Frame};

/// Bytes that are asked of the socket at once.
const SIP: usize = 64 << 10;

/// Files that may have come and belong to nothing yet.
const MAX_FILES: usize = 4;

/// What has come on a socket, until it is understood.
#[derive(Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    /// How many at the front are dealt with.
    done: usize,
    files: VecDeque<OwnedFd>,
}

impl Input {
    /// Takes what has come, without waiting for it.
    pub(super) fn fill(&mut self, socket: &UnixStream) -> Result<(), TransferError> {
        self.bytes.drain(..self.done);
        self.done = 0;
        let have = self.bytes.len();
        self.bytes.resize(have + SIP, 0);
        let got = self.receive(socket, have);
        self.bytes.truncate(have + got.unwrap_or(0));
        if self.bytes.is_empty() {
            self.bytes.shrink_to(SIP);
        }
        match got {
            Ok(0) => Err(hung_up()),
            Ok(_) if self.files.len() > MAX_FILES => Err(broken("files that belong to nothing")),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(why) => Err(lost(&why.into())),
        }
    }

    fn receive(&mut self, socket: &UnixStream, from: usize) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let room = self.bytes.get_mut(from..).unwrap_or_default();
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(socket, &mut [IoSliceMut::new(room)], &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.files.extend(files);
            }
        }
        Ok(got.bytes)
    }

    /// The next frame with the bytes that follow it, once all of them have come.
    pub(super) fn next<T>(
        &mut self,
        decode: impl Fn(&Frame) -> Option<(T, usize)>,
    ) -> Result<Option<(T, Vec<u8>)>, TransferError> {
        let rest = self.bytes.get(self.done..).unwrap_or_default();
        let Some((frame, rest)) = rest.split_first_chunk() else { return Ok(None) };
        let (said, len) = decode(frame).ok_or(broken("an unknown frame"))?;
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let body = body.to_vec();
        self.done += FRAME_LEN + len;
        Ok(Some((said, body)))
    }

    /// The next of the files that have come.
    pub(super) fn file(&mut self) -> Result<OwnedFd, TransferError> {
        self.files.pop_front().ok_or(broken("a file that did not come"))
    }
}
