//! Reads over TCP: parallel streams, straight from and into registered memory.
//!
//! A reader dials `streams` sockets to a source and sends each transfer as one compact
//! request on the first of them. The source checks it against its grants and cuts it into
//! *portions* of 2 MiB, which its sender threads, one a stream, take from all active transfers
//! in turn: a small transfer never waits behind more than one portion of each large one. A
//! portion says whose and which it is, so streams need no order among each other.
//!
//! Under TLS the same frames and portions go through a buffer on each side, where they are
//! encrypted and decrypted; without it, nothing of that is touched.
//!
//! Small answers are not worth a thread: while no more is owed than a socket holds, the caller of
//! the endpoint is woken by the first stream itself and receives in
//! [`poll`](crate::Endpoint::poll), or, if it does not come, the heartbeat does.
//!
//! Every thread sleeps when there is nothing to do. A connection has `streams + 1` threads on
//! either side; one more accepts.

mod beat;
mod config;
mod dial;
mod door;
mod ears;
mod endpoint;
mod first;
pub(crate) mod frame;
mod greet;
mod inbox;
mod incoming;
mod link;
mod outbox;
mod peer;
mod queue;
mod receiver;
pub(crate) mod request;
mod seal;
mod serve;
mod stream;
#[allow(unsafe_code)]
mod wire;

pub use config::TcpConfig;
pub use endpoint::TcpEndpoint;
pub use wire::LowWater;

/// Transfers that a reader may have open at one source.
pub(crate) const MAX_OPEN_REQUESTS: usize = 4096;

/// Bytes of one request. `connector::limits::MAX_LEASE_BLOCKS` is chosen so that a read of all
/// blocks of the largest lease fits.
pub(crate) const MAX_REQUEST_BYTES: usize = 8 << 20;

/// Bytes of all requests that a reader may have open at one source.
pub(crate) const MAX_OPEN_REQUEST_BYTES: usize = 4 * MAX_REQUEST_BYTES;

/// Streams of one connection.
const MAX_STREAMS: u16 = 16;
