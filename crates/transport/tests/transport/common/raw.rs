//! The other side of a data connection, spoken by hand: what a peer might do wrong.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};

use transport::session::{Channel, HELLO_LEN, Hello, Role, VERSIONS};
use transport::{AgentId, Card};

use super::{READER, SOURCE};

pub const FRAME_LEN: usize = 64;
pub const REQUEST: u32 = 1;
pub const CANCEL: u32 = 2;
pub const PING: u32 = 3;
pub const PORTION: u32 = 4;
pub const END: u32 = 5;

pub fn hello(agent: AgentId, role: Role) -> Hello {
    static CHANNELS: AtomicU8 = AtomicU8::new(0);
    Hello {
        versions: VERSIONS,
        role,
        channel: Channel::Data,
        stream: 0,
        streams: 1,
        engine: 0,
        agent,
        random: [CHANNELS.fetch_add(1, Ordering::Relaxed); 16],
        proves: false,
    }
}

pub fn frame(kind: u32, small: u32, transfer: u64, large: u64) -> Vec<u8> {
    let small = [kind.to_le_bytes(), small.to_le_bytes()].concat();
    let mut frame = [small, [transfer.to_le_bytes(), large.to_le_bytes()].concat()].concat();
    frame.resize(FRAME_LEN, 0);
    frame
}

/// Sends a hello and hears the other.
pub fn greet(mut socket: &TcpStream, hello: &Hello) -> Hello {
    socket.write_all(&hello.encode()).unwrap();
    hear(socket)
}

fn hear(mut socket: &TcpStream) -> Hello {
    let mut bytes = [0; HELLO_LEN];
    socket.read_exact(&mut bytes).unwrap();
    Hello::decode(&bytes).unwrap()
}

/// A connection to a serving endpoint, as a reader of one stream.
pub fn reader(card: &Card) -> TcpStream {
    let socket = TcpStream::connect(&card.address).unwrap();
    let answer = greet(&socket, &hello(READER, Role::Decode));
    assert_eq!((answer.role, answer.agent), (Role::Prefill, card.agent));
    socket
}

/// Whether the other side hangs up, whatever it says before.
pub fn hangs_up(mut socket: &TcpStream) -> bool {
    socket.set_read_timeout(Some(super::PATIENCE)).unwrap();
    let mut bytes = [0; 1 << 16];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// A source of one's own making.
pub struct Source {
    listener: TcpListener,
}

impl Source {
    pub fn new() -> Self {
        Self { listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap() }
    }

    pub fn card(&self) -> Card {
        let address: SocketAddr = self.listener.local_addr().unwrap();
        Card { provider: "tcp", agent: SOURCE, address: address.to_string() }
    }

    /// Accepts a stream and answers its hello with `answer`, as changed by the caller.
    pub fn accept(&self, change: impl FnOnce(&mut Hello)) -> TcpStream {
        let (mut socket, _) = self.listener.accept().unwrap();
        hear(&socket);
        let mut answer = hello(SOURCE, Role::Prefill);
        change(&mut answer);
        socket.write_all(&answer.encode()).unwrap();
        socket
    }

    /// Accepts a connection of one stream, and hears its first request.
    pub fn request(&self) -> TcpStream {
        let mut socket = self.accept(|_| ());
        let mut head = [0; FRAME_LEN];
        socket.read_exact(&mut head).unwrap();
        while head[..4] == PING.to_le_bytes() {
            socket.read_exact(&mut head).unwrap();
        }
        assert_eq!(head[..4], REQUEST.to_le_bytes());
        let len = u32::from_le_bytes(head[4..8].try_into().unwrap());
        socket.read_exact(&mut vec![0; len as usize]).unwrap();
        socket
    }
}
