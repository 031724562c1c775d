//! Reads between processes of one user on one host: bytes are copied once, by the reader.
//!
//! A reader connects to a source over a socket that has no file, and shows each transfer there
//! as one compact request, as over [`tcp`](crate::tcp). The source checks it against its grants
//! and answers yes or no; the bytes never cross the socket. After a yes the reader copies them
//! out of the source's memory, in *portions* of 2 MiB that its threads take from all active
//! transfers in turn, and says when it is over.
//!
//! * Memory that is [shared](crate::Memory::shared) is mapped by the reader, which copies it
//!   without a system call: the fastest way there is.
//! * All other memory is *foreign*: the kernel copies it out of the other process
//!   (`process_vm_readv`), as far as it allows that. [`probe`] finds out, and says why not.
//!
//! When a grant is revoked, the source tells the reader to stop, and reports
//! [`Revoked`](crate::Event::Revoked) when that has let go; a reader that takes too long is cut
//! off. A registration that ends is withdrawn in the same way, and its memory lives until then.
//!
//! A peer can reach more than it is granted: a reader is of the same user, so the kernel lets it
//! read all of the source's memory, and it checks nothing. The grants keep honest readers from
//! stale blocks. A secret keeps readers out that do not know it, and nobody else.
//!
//! Where the Yama module has `ptrace_scope` 1, a source gives its first reader leave to read its
//! memory (`PR_SET_PTRACER`), and every process of its user when a second one comes.
//!
//! Every thread sleeps when there is nothing to do, without a timer: the kernel tells of the
//! peer's death. A connection has a thread on either side, and the reader's starts others that
//! copy when there is enough for them; one more accepts.

mod address;
mod atlas;
mod catalog;
mod config;
#[allow(unsafe_code)]
mod copy;
mod desk;
mod door;
mod endpoint;
mod frame;
mod greet;
mod input;
#[allow(unsafe_code)]
mod mapping;
#[allow(unsafe_code)]
mod open;
mod outbox;
mod peer;
#[allow(unsafe_code)]
pub mod plain;
mod probe;
mod process;
mod reading;
mod serve;
mod show;
#[allow(unsafe_code)]
mod sys;
mod tracer;
mod unusable;

use crate::tcp::{MAX_REQUEST_BYTES, frame as frames};
use crate::{BoundRegion, Memory};
pub use config::ShmConfig;
pub use endpoint::ShmEndpoint;
pub use probe::{Offer, probe};
pub use unusable::Unusable;

/// Bytes of what is told of one registration.
const MAX_SHOW_BYTES: usize = 2 << 20;

/// Regions of one registration, so that it fits.
const MAX_REGIONS_SHOWN: usize = MAX_SHOW_BYTES / show::REGION_LEN - 1;

/// Regions and registrations of a source that a reader keeps in mind.
const MAX_REGIONS: usize = 1 << 20;

/// Bytes of answers that may wait for a peer that does not listen.
const MAX_WAITING: usize = 1 << 20;

/// Bytes that a source may show to measure with.
const MAX_PROBE_BYTES: u64 = 64 << 20;
