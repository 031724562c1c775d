//! The side that plain sockets read from.

use std::io::{self, BufReader, IoSlice, Read};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::socket;
use crate::bench::bytes;
use crate::bench::words::Plain;
use crate::bench::workload::Workload;
use crate::failure::{Code, Failure};

/// Sockets that are served at a time: all cases of one reader.
const MAX_SOCKETS: usize = 64;

/// Requests of a few thousand blocks come in one call.
const REQUEST_BUFFER: usize = 64 << 10;

const PASS_WITHIN: Duration = Duration::from_secs(5);

/// Serves a pool of its own to those who know the pass, until it is dropped.
pub(in crate::bench) struct PlainSource {
    plain: Plain,
    listener: Arc<TcpListener>,
    thread: Option<JoinHandle<()>>,
}

/// What each socket's thread knows.
struct Served {
    pool: Vec<u8>,
    block: usize,
    /// Blocks of the largest request.
    most: usize,
    pass: u64,
    sockets: AtomicUsize,
}

impl PlainSource {
    pub(in crate::bench) fn open(ip: IpAddr, workload: &Workload) -> Result<Self, Failure> {
        Self::start(ip, workload)
            .map_err(|why| Failure::new(Code::Peer, format!("cannot serve plain sockets: {why}")))
    }

    fn start(ip: IpAddr, workload: &Workload) -> io::Result<Self> {
        let listener = Arc::new(TcpListener::bind(SocketAddr::new(ip, 0))?);
        let plain = Plain { address: listener.local_addr()?, pass: rand::random() };
        let bytes = usize::try_from(workload.pool_bytes()).map_err(io::Error::other)?;
        let (block, moved) = (workload.block as usize, workload.moved as usize);
        let most = moved * workload.regions as usize;
        let pool = bytes::filled(bytes);
        let sockets = AtomicUsize::new(0);
        let served = Arc::new(Served { pool, block, most, pass: plain.pass, sockets });
        let accepting = Arc::clone(&listener);
        let thread = thread::Builder::new().name("plain-accept".to_owned());
        let thread = thread.spawn(move || accept(&accepting, &served))?;
        Ok(Self { plain, listener, thread: Some(thread) })
    }

    pub(in crate::bench) fn plain(&self) -> Plain {
        self.plain
    }
}

impl Drop for PlainSource {
    fn drop(&mut self) {
        // Wakes the thread that accepts. The others end with their readers' sockets.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn accept(listener: &TcpListener, served: &Arc<Served>) {
    while let Ok((socket, _)) = listener.accept() {
        if served.sockets.fetch_add(1, Ordering::Relaxed) >= MAX_SOCKETS {
            served.sockets.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let of_thread = Arc::clone(served);
        let serve = move || {
            if let Err(why) = of_thread.serve(&socket) {
                tracing::debug!(%why, "a plain socket ended");
            }
            let _ = socket.shutdown(Shutdown::Both);
            of_thread.sockets.fetch_sub(1, Ordering::Relaxed);
        };
        if thread::Builder::new().name("plain-send".to_owned()).spawn(serve).is_err() {
            served.sockets.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Served {
    fn serve(&self, socket: &TcpStream) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let mut asked = BufReader::with_capacity(REQUEST_BUFFER, socket);
        let mut pass = [0; 8];
        // Whoever does not say it keeps no place.
        socket.set_read_timeout(Some(PASS_WITHIN))?;
        asked.read_exact(&mut pass)?;
        socket.set_read_timeout(None)?;
        if u64::from_le_bytes(pass) != self.pass {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        loop {
            let mut count = [0; 4];
            asked.read_exact(&mut count)?;
            let count = u32::from_le_bytes(count) as usize;
            if count > self.most {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut places = vec![0; 4 * count];
            asked.read_exact(&mut places)?;
            let (places, _) = places.as_chunks();
            let pieces = places.iter().map(|place| self.piece(u32::from_le_bytes(*place)));
            let mut pieces =
                pieces.collect::<Option<Vec<_>>>().ok_or(io::ErrorKind::InvalidData)?;
            socket::write(socket, &mut pieces)?;
        }
    }

    fn piece(&self, place: u32) -> Option<IoSlice<'_>> {
        let start = (place as usize).checked_mul(self.block)?;
        self.pool.get(start..start.checked_add(self.block)?).map(IoSlice::new)
    }
}
