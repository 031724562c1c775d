//! What the machine can do without any of this: memory copied, by hand and by the kernel, and
//! plain sockets that carry the same blocks with vectored calls.

pub(super) mod memory;
mod socket;
pub(super) mod source;

use std::cell::RefCell;
use std::io::IoSliceMut;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::thread;

use super::bytes;
use super::case::{Case, Kind};
use super::usage::Taken;
use super::words::Plain;
use super::workload::Move;
use crate::failure::{Code, Failure};

/// What plain sockets write into.
pub(super) struct Target {
    pub(super) pool: RefCell<Vec<u8>>,
    pub(super) moves: Arc<[Move]>,
    pub(super) block: usize,
}

impl Target {
    fn poison(&self) {
        bytes::poison_plain(&mut self.pool.borrow_mut(), &self.moves, self.block);
    }

    fn wrong_bytes(&self) -> u64 {
        bytes::wrong_plain(&self.pool.borrow(), &self.moves, self.block)
    }
}

/// How plain sockets are used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) streams: usize,
    /// Whether a reader is woken for each packet, or for 256 KiB.
    pub(super) low_water: bool,
}

impl Manner {
    /// Those that are measured; of a single block, the one that can help it.
    pub(super) fn all(latency: bool) -> Vec<Self> {
        let each = [1, 2, 4]
            .into_iter()
            .flat_map(|streams| [false, true].map(|low_water| Self { streams, low_water }));
        each.take(if latency { 1 } else { 6 }).collect()
    }

    pub(super) fn name(self) -> String {
        let streams = if self.streams == 1 { "stream" } else { "streams" };
        let mark = if self.low_water { " low-water" } else { "" };
        format!("plain tcp {} {streams}{mark}", self.streams)
    }
}

/// Sockets to the source, with a thread for each.
pub(super) struct PlainTcp {
    name: String,
    low_water: bool,
    sockets: Vec<TcpStream>,
    /// What each socket asks for.
    requests: Vec<Vec<u8>>,
    /// Blocks that each socket carries at most.
    share: usize,
    target: Rc<Target>,
}

impl PlainTcp {
    /// `reached` has the address at which the source was found.
    pub(super) fn new(
        manner: Manner,
        plain: Plain,
        reached: SocketAddr,
        target: &Rc<Target>,
    ) -> Result<Self, Failure> {
        let address = SocketAddr::new(reached.ip(), plain.address.port());
        let share = target.moves.len().div_ceil(manner.streams);
        let shares = target.moves.chunks(share);
        let sockets = shares.clone().map(|_| socket::dial(address, plain.pass));
        let sockets = sockets.collect::<Result<_, _>>().map_err(|why| lost(&why))?;
        let requests = shares.map(|share| socket::request(share, target.block)).collect();
        let (name, target) = (manner.name(), Rc::clone(target));
        Ok(Self { name, low_water: manner.low_water, sockets, requests, share, target })
    }

    fn read(&self, targets: &mut [IoSliceMut<'_>]) -> Result<Taken, Failure> {
        let low_water = self.low_water;
        if let ([socket], [request]) = (self.sockets.as_slice(), self.requests.as_slice()) {
            return Taken::by(|| read(socket, request, targets, low_water));
        }
        let start = &Barrier::new(self.sockets.len() + 1);
        thread::scope(|scope| {
            let mut threads = Vec::new();
            let asked = self.sockets.iter().zip(&self.requests);
            for ((socket, request), targets) in asked.zip(targets.chunks_mut(self.share)) {
                threads.push(scope.spawn(move || {
                    start.wait();
                    read(socket, request, targets, low_water)
                }));
            }
            // The threads are there: only the moving is timed.
            Taken::by(|| {
                start.wait();
                let panicked = |_| Failure::new(Code::Failed, "a thread panicked");
                threads.into_iter().try_for_each(|thread| thread.join().map_err(panicked)?)
            })
        })
    }
}

fn read(
    socket: &TcpStream,
    request: &[u8],
    targets: &mut [IoSliceMut<'_>],
    low_water: bool,
) -> Result<(), Failure> {
    socket::read(socket, request, targets, low_water).map_err(|why| lost(&why))
}

impl Case for PlainTcp {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Tcp
    }

    fn is_limit(&self) -> bool {
        true
    }

    fn poison(&mut self) {
        self.target.poison();
    }

    fn run(&mut self) -> Result<Taken, Failure> {
        let Target { pool, moves, block } = &*self.target;
        let mut pool = pool.borrow_mut();
        let mut blocks: Vec<Option<&mut [u8]>> = pool.chunks_exact_mut(*block).map(Some).collect();
        let target = |at: &Move| blocks.get_mut(at.target / block).and_then(Option::take);
        let mut targets: Vec<_> = moves.iter().filter_map(target).map(IoSliceMut::new).collect();
        self.read(&mut targets)
    }

    fn wrong_bytes(&self) -> u64 {
        self.target.wrong_bytes()
    }
}

fn lost(why: &std::io::Error) -> Failure {
    Failure::new(Code::Peer, format!("a plain socket to the source is lost: {why}"))
}
