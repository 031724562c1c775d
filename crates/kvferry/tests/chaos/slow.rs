//! A slow way between two hosts that needs nothing of the kernel but namespaces: on the decode
//! engine's host, 127.0.0.1 is this way and leads to 127.0.0.1 of the prefill engine's host. So
//! each side finds the other at the very address that the handshake names.
//!
//! What a lost packet does to a stream is what the stream's reader sees of it: all that comes
//! behind waits until it was sent again.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{Ipv4Addr, TcpStream as Blocking};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::dice::Dice;

const DELAY: Duration = Duration::from_millis(20);
/// One packet in a hundred; of what is read at once, which may be several, as many.
const LOST: u64 = 100;
/// The least time after which Linux sends anew what nobody has confirmed.
const SENT_ANEW: Duration = Duration::from_millis(200);
const PACKET: usize = 16 << 10;

/// Asks for a connection to a port of the prefill engine's host.
type Dialler = Sender<(u16, oneshot::Sender<std::io::Result<Blocking>>)>;

/// Ends when it is dropped.
pub struct Way {
    stop: Option<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Way {
    /// Between two namespaces, the prefill engine's first.
    pub fn start([p, d]: [PathBuf; 2], ports: BTreeSet<u16>, seed: u64) -> Self {
        let (dialler, dialled) = channel();
        let (stop, stopped) = oneshot::channel();
        let dial = spawn(move || {
            enter(&p);
            for (port, reply) in dialled {
                let reply: oneshot::Sender<_> = reply;
                let _ = reply.send(Blocking::connect((Ipv4Addr::LOCALHOST, port)));
            }
        });
        let (ready, listening) = channel();
        let carry = spawn(move || {
            enter(&d);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                for port in ports {
                    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.unwrap();
                    tokio::spawn(listen(listener, port, dialler.clone(), seed));
                }
                drop(dialler);
                ready.send(()).unwrap();
                let _ = stopped.await;
            });
        });
        listening.recv().unwrap();
        Self { stop: Some(stop), threads: vec![carry, dial] }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.stop.take();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn enter(space: &PathBuf) {
    let space = File::open(space).unwrap();
    move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

async fn listen(listener: TcpListener, port: u16, dialler: Dialler, seed: u64) {
    for connection in 0.. {
        let (near, _) = listener.accept().await.unwrap();
        let (reply, dialled) = oneshot::channel();
        dialler.send((port, reply)).unwrap();
        // Nobody there: the caller sees its connection end.
        let Ok(far) = dialled.await.unwrap() else { continue };
        far.set_nonblocking(true).unwrap();
        let far = TcpStream::from_std(far).unwrap();
        for stream in [&near, &far] {
            stream.set_nodelay(true).unwrap();
        }
        let ((from_d, to_d), (from_p, to_p)) = (near.into_split(), far.into_split());
        let dice = |way: u64| Dice::new(seed + 2 * connection + way, "slow");
        carry(from_d, to_p, dice(0));
        carry(from_p, to_d, dice(1));
    }
}

/// Carries one direction; all that was read arrives, in order, and late.
fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut dice: Dice) {
    let (sent, mut arriving) = mpsc::channel::<(Instant, Vec<u8>)>(256);
    tokio::spawn(async move {
        let mut last = Instant::now();
        let mut packet = vec![0; PACKET];
        while let Ok(len @ 1..) = from.read(&mut packet).await {
            let lost = dice.of(0..LOST) == 0;
            let again = if lost { SENT_ANEW } else { Duration::ZERO };
            last = last.max(Instant::now() + DELAY + again);
            if sent.send((last, packet[..len].to_vec())).await.is_err() {
                break;
            }
        }
    });
    tokio::spawn(async move {
        while let Some((due, packet)) = arriving.recv().await {
            sleep_until(due).await;
            if to.write_all(&packet).await.is_err() {
                break;
            }
        }
        let _ = to.shutdown().await;
    });
}
