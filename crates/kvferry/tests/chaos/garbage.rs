//! Strangers on the ports of a prefill engine, from the test's own process.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use kvferry::transport::AgentId;
use kvferry::transport::session::{Channel, HELLO_LEN, Hello, Role, VERSIONS};

use crate::dice::Dice;

/// Threads that connect at the same time.
const CALLERS: u64 = 4;
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections one after the other, which say something and hang up. Gives how many there were.
pub struct Flood(Vec<JoinHandle<u64>>);

impl Flood {
    pub fn start(ports: &BTreeSet<u16>, count: u64, seed: u64) -> Self {
        let caller = |caller| {
            let (ports, mut dice) =
                (ports.iter().copied().collect::<Vec<_>>(), Dice::new(seed + caller, "flood"));
            spawn(move || (0..count / CALLERS).filter(|_| call(&ports, &mut dice)).count() as u64)
        };
        Self((0..CALLERS).map(caller).collect())
    }

    pub fn is_over(&self) -> bool {
        self.0.iter().all(JoinHandle::is_finished)
    }

    pub fn end(self) -> u64 {
        self.0.into_iter().map(|caller| caller.join().unwrap()).sum()
    }
}

/// Whether there was a connection. The other end may have enough at any time.
fn call(ports: &[u16], dice: &mut Dice) -> bool {
    let Some(mut stream) = connect(ports, dice) else { return false };
    let words = match dice.of(0..3) {
        0 => dice.bytes(4096),
        1 => dice.bytes(40),
        _ => hello()[..usize::try_from(dice.of(0..HELLO_LEN as u64)).unwrap()].to_vec(),
    };
    let _ = stream.write_all(&words);
    if dice.of(0..2) == 0 {
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read(&mut [0; 64]);
    }
    true
}

fn connect(ports: &[u16], dice: &mut Dice) -> Option<TcpStream> {
    let port = ports[usize::try_from(dice.next() % ports.len() as u64).unwrap()];
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    Some(stream)
}

fn hello() -> [u8; HELLO_LEN] {
    let hello = Hello {
        versions: VERSIONS,
        role: Role::Decode,
        channel: Channel::Control,
        stream: 0,
        streams: 1,
        engine: 77,
        agent: AgentId(77),
        random: [7; 16],
        proves: false,
    };
    hello.encode()
}

/// Connections that say nothing, and others that say a byte a second; who is turned away comes
/// again. Gone when this is dropped.
pub struct Loiterers {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Loiterers {
    pub fn start(ports: &BTreeSet<u16>, silent: usize, slow: usize, seed: u64) -> Self {
        let (stop, stopped) = channel::<()>();
        let (ports, mut dice) =
            (ports.iter().copied().collect::<Vec<_>>(), Dice::new(seed, "loiterers"));
        let thread = spawn(move || {
            let mut here: Vec<Option<TcpStream>> = (0..silent + slow).map(|_| None).collect();
            let hello = hello();
            for second in 0.. {
                for (index, place) in here.iter_mut().enumerate() {
                    stay(place, || connect(&ports, &mut dice));
                    if let (Some(stream), true) = (place, index < slow) {
                        let _ = stream.write(&hello[second % HELLO_LEN..][..1]);
                    }
                }
                if stopped.recv_timeout(Duration::from_secs(1)) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

/// Comes again if the other end has hung up.
fn stay(place: &mut Option<TcpStream>, again: impl FnOnce() -> Option<TcpStream>) {
    let stands = place.as_mut().is_some_and(|stream| {
        matches!(stream.read(&mut [0; 64]), Err(why) if why.kind() == ErrorKind::WouldBlock)
    });
    if !stands {
        *place = again().filter(|stream| stream.set_nonblocking(true).is_ok());
    }
}

impl Drop for Loiterers {
    fn drop(&mut self) {
        self.stop.take();
        // Where it failed it has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
