use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::table::Taken;
use crate::workload::{Workload, word};
use crate::{Fallible, Mover};

/// Pieces of one vectored call; the kernel takes no more.
const PIECES: usize = 1024;

/// What all plain movers read from and write to.
pub struct Pools {
    source: Arc<Vec<u8>>,
    target: Arc<Mutex<Vec<u8>>>,
}

impl Pools {
    pub fn new(workload: &Workload) -> Self {
        let words = 0..workload.pool_bytes() / 8;
        Self {
            source: Arc::new(words.flat_map(|index| word(index).to_ne_bytes()).collect()),
            target: Arc::new(Mutex::new(vec![0; workload.pool_bytes()])),
        }
    }
}

impl Pools {
    fn target(&self) -> MutexGuard<'_, Vec<u8>> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sockets that are written and read by a pair of threads each.
pub struct Plain {
    pools: Pools,
    sockets: Vec<(TcpStream, TcpStream)>,
    moves: Vec<(usize, usize)>,
    block: usize,
}

impl Plain {
    pub fn new(workload: &Workload, pools: &Pools, streams: usize) -> Fallible<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let pair = || {
            let sender = TcpStream::connect(listener.local_addr()?)?;
            let (receiver, _) = listener.accept()?;
            sender.set_nodelay(true)?;
            Ok((sender, receiver))
        };
        Ok(Self {
            pools: Pools { source: Arc::clone(&pools.source), target: Arc::clone(&pools.target) },
            sockets: (0..streams).map(|_| pair()).collect::<Fallible<_>>()?,
            moves: workload.moves(),
            block: workload.block,
        })
    }

    /// The blocks to write, in the order of the moves.
    fn sources<'a>(&self, pool: &'a [u8]) -> Vec<IoSlice<'a>> {
        let source = |&(source, _): &(usize, usize)| {
            IoSlice::new(pool.get(source..source + self.block).unwrap_or_default())
        };
        self.moves.iter().map(source).collect()
    }

    /// The blocks to read into, in the same order.
    fn targets<'a>(&self, pool: &'a mut [u8]) -> Vec<IoSliceMut<'a>> {
        let mut blocks: Vec<Option<&mut [u8]>> =
            pool.chunks_exact_mut(self.block).map(Some).collect();
        let target = |&(_, target): &(usize, usize)| {
            blocks.get_mut(target / self.block).and_then(Option::take).map(IoSliceMut::new)
        };
        self.moves.iter().filter_map(target).collect()
    }
}

impl Mover for Plain {
    fn name(&self) -> String {
        format!("plain, {} streams", self.sockets.len())
    }

    fn poison(&mut self) {
        let mut pool = self.pools.target();
        for target in self.targets(&mut pool).iter_mut() {
            target.fill(0xee);
        }
    }

    fn run(&mut self) -> Fallible<Taken> {
        let mut pool = self.pools.target();
        let (mut sources, mut targets) =
            (self.sources(&self.pools.source), self.targets(&mut pool));
        let share = self.moves.len().div_ceil(self.sockets.len());
        let shares = sources.chunks_mut(share).zip(targets.chunks_mut(share));
        let start = &Barrier::new(2 * self.sockets.len() + 1);
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for ((sender, receiver), (sources, targets)) in self.sockets.iter().zip(shares) {
                threads.push(scope.spawn(move || write(start, sender, sources)));
                threads.push(scope.spawn(move || read(start, receiver, targets)));
            }
            // The lists are made and the threads are there: only the moving is timed.
            Taken::by(|| {
                start.wait();
                threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "panic")?)
            })
        })
    }

    fn wrong_words(&self) -> usize {
        let target = self.pools.target();
        let wrong = |&(from, to): &(usize, usize)| {
            let pairs = (from..from + self.block).zip(to..to + self.block);
            pairs.filter(|&(from, to)| self.pools.source.get(from) != target.get(to)).count()
        };
        self.moves.iter().map(wrong).sum()
    }
}

fn write(start: &Barrier, mut socket: &TcpStream, mut blocks: &mut [IoSlice<'_>]) -> Fallible<()> {
    start.wait();
    while !blocks.is_empty() {
        let len = blocks.len().min(PIECES);
        let sent = socket.write_vectored(&blocks[..len])?;
        IoSlice::advance_slices(&mut blocks, sent);
    }
    Ok(())
}

fn read(
    start: &Barrier,
    mut socket: &TcpStream,
    mut blocks: &mut [IoSliceMut<'_>],
) -> Fallible<()> {
    start.wait();
    while !blocks.is_empty() {
        let len = blocks.len().min(PIECES);
        let received = socket.read_vectored(&mut blocks[..len])?;
        if received == 0 {
            return Err("the sender hung up".into());
        }
        IoSliceMut::advance_slices(&mut blocks, received);
    }
    Ok(())
}
