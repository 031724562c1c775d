//! The other side of a connection through shared memory, spoken by hand.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use transport::session::{HELLO_LEN, Hello, Role};
use transport::{AgentId, Card};

use super::raw::{FRAME_LEN, frame, hello};
use super::{PATIENCE, READER, SOURCE};

pub const REQUEST: u32 = 1;
pub const OVER: u32 = 2;
pub const WITHDRAWN: u32 = 3;
pub const PROBE: u32 = 4;
pub const SHOW: u32 = 5;
pub const HERE: u32 = 6;
pub const WITHDRAW: u32 = 7;
pub const ANSWER: u32 = 8;
pub const STOP: u32 = 9;
pub const BUFFER: u32 = 10;

pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

pub fn place(name: &str) -> SocketAddr {
    SocketAddr::from_abstract_name(name).unwrap()
}

pub fn connect(card: &Card) -> UnixStream {
    let (_, name) = card.address.split_once('/').unwrap();
    let socket = UnixStream::connect_addr(&place(name)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn hear(mut socket: &UnixStream) -> Hello {
    let mut bytes = [0; HELLO_LEN];
    socket.read_exact(&mut bytes).unwrap();
    Hello::decode(&bytes).unwrap()
}

/// A reader that has heard all that a source shows first: its frames, without what follows them.
pub fn reader(card: &Card) -> (UnixStream, Vec<Frame>) {
    let mut socket = connect(card);
    socket.write_all(&hello(READER, Role::Decode).encode()).unwrap();
    assert_eq!(hear(&socket).agent, card.agent);
    let mut shown = Vec::new();
    loop {
        let frame = next(&mut socket);
        shown.push(frame);
        if frame.kind == HERE {
            return (socket, shown);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u32,
    pub small: u32,
    pub a: u64,
    pub b: u64,
}

/// The next frame; what follows a show or a request is thrown away.
pub fn next(socket: &mut UnixStream) -> Frame {
    let mut head = [0; FRAME_LEN];
    socket.read_exact(&mut head).unwrap();
    let half = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
    let frame = Frame { kind: half(0), small: half(4), a: word(8), b: word(16) };
    if [SHOW, REQUEST].contains(&frame.kind) {
        socket.read_exact(&mut vec![0; frame.small as usize]).unwrap();
    }
    frame
}

/// Whether the other side hangs up, whatever it says before.
pub fn hangs_up(mut socket: &UnixStream) -> bool {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = [0; 1 << 16];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// A registration as it is shown: where it is, its bytes, whether a file should come along, and
/// regions as id, blocks, offset and stride.
pub fn show(
    generation: u64,
    base: u64,
    len: u64,
    shared: u64,
    regions: &[(u32, u32, u64, u64)],
) -> Vec<u8> {
    let mut body: Vec<u8> =
        [base, len, shared].iter().flat_map(|word| word.to_le_bytes()).collect();
    for (id, blocks, offset, stride) in regions {
        body.extend(id.to_le_bytes());
        body.extend(blocks.to_le_bytes());
        body.extend(offset.to_le_bytes());
        body.extend(stride.to_le_bytes());
    }
    [frame(SHOW, body.len() as u32, generation, 0), body].concat()
}

/// A source of one's own making.
pub struct Source {
    listener: UnixListener,
    name: String,
    nonce: Box<u64>,
}

impl Source {
    pub fn new() -> Self {
        let nonce = Box::new(0x1234_5678_9abc_def0);
        let name = format!("kvferry-test-{}-{}", std::process::id(), (&raw const *nonce).addr());
        Self { listener: UnixListener::bind_addr(&place(&name)).unwrap(), name, nonce }
    }

    pub fn card(&self) -> Card {
        let address = format!("{}/{}", boot_id(), self.name);
        Card { provider: "shm", agent: SOURCE, address }
    }

    /// The frame that proves whose memory it is.
    pub fn here(&self) -> Vec<u8> {
        frame(HERE, std::process::id(), (&raw const *self.nonce).addr() as u64, *self.nonce)
    }

    pub fn accept(&self) -> UnixStream {
        self.accept_as(SOURCE)
    }

    /// Accepts a reader, and gets to know it.
    pub fn accept_as(&self, agent: AgentId) -> UnixStream {
        let mut socket = self.listener.accept().unwrap().0;
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        hear(&socket);
        socket.write_all(&hello(agent, Role::Prefill).encode()).unwrap();
        socket
    }

    /// Accepts one that never hears a word.
    pub fn accept_silently(&self) -> UnixStream {
        self.listener.accept().unwrap().0
    }
}

/// Sends bytes with which a file comes along.
pub fn send_with(socket: &UnixStream, bytes: &[u8], file: BorrowedFd<'_>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    let _ = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
}

/// Says no more, and waits until the other side has seen it.
pub fn finish(socket: &UnixStream) {
    let _ = socket.shutdown(Shutdown::Write);
    assert!(hangs_up(socket));
}
