//! The hand-off protocol as state machines without I/O, threads or clocks.
//!
//! 1. P finishes a prefill: its [`Scheduler`] grants a lease, which each [`Worker`] of P keeps,
//!    and gives [parameters](params) for the router.
//! 2. D's [`Scheduler`] reads the parameters and has each worker fetch the request while it is
//!    still queued ([`Input::Fetch`]). A worker that does not know P's ranks yet greets them
//!    ([`Action::Greet`], [`handshake`]), then it claims.
//! 3. P answers with the block tables, a read token and the [digest] of the prompt; D
//!    compares the digest ([`Event::Offered`]).
//! 4. When D's engine has blocks, the worker reads ([`Input::Read`], [`Action::Read`]) while the
//!    claim is renewed.
//! 5. D commits: only where P still kept the blocks then ([`Answer::Alive`](message::Answer))
//!    do they count ([`Event::Received`]); no clock has a say in that. Requests of one lease,
//!    the samples of a prompt, share a claim: those that are not the last to be read ask with
//!    [`Request::Check`](message::Request::Check), and the claim goes on. D's scheduler tells the
//!    engine when every worker has received its share ([`Outcome::Received`]).
//! 6. P frees ([`Event::Freed`], [`Outcome::Freed`]) when no claim lives, the lease is
//!    satisfied, released or over, and nothing is sent under any of its tokens any more.
//!
//! The driver carries [`Message`](message::Message)s, as frames of the [`codec`], and the time:
//!
//! ```
//! use std::collections::{BTreeMap, BTreeSet};
//!
//! use connector::params::{Address, RankAddress};
//! use connector::*;
//!
//! /// Carries what one worker sends to the other, and gives the events of the sender.
//! fn carry(now: Time, sender: (&mut Worker, Peer), receiver: &mut Worker) -> Vec<Event> {
//!     while let Some(action) = sender.0.poll_action() {
//!         match action {
//!             Action::Send(message) => {
//!                 receiver.handle(now, Input::Message { from: sender.1, message });
//!             }
//!             // With nothing to read, nothing is in flight: revoked at once.
//!             Action::Revoke { token } => sender.0.handle(now, Input::Revoked(token)),
//!             _ => {}
//!         }
//!     }
//!     std::iter::from_fn(|| sender.0.poll_event()).collect()
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (p, d) = (
//!     Peer { engine: EngineEpoch(1), agent: AgentEpoch(10) },
//!     Peer { engine: EngineEpoch(2), agent: AgentEpoch(20) },
//! );
//! let mut prefill = Worker::new(p, Rank(0), Bounds::default(), [7; 32])?;
//! let mut decode = Worker::new(d, Rank(0), Bounds::default(), [8; 32])?;
//!
//! let prompt = PromptIdentity { tokens: &[1, 2, 3], model: "m", ..Default::default() }.digest();
//! let lease = LeaseId { engine: p.engine, request: RequestId::new("r")?, nonce: Nonce(99) };
//! let claim = ClaimId { lease: lease.clone(), engine: d.engine, request: RequestId::new("q")? };
//! let first = RankAddress { host: "p".into(), port: 5600 };
//! let address = Address { engine_id: "p".into(), tp_size: 1, first, others: vec![] };
//!
//! let now = Time::ZERO;
//! prefill.handle(now, Input::Lease(Lease { id: lease.clone(), prompt, tables: [].into() }));
//! let fetch = Fetch { claim: claim.clone(), shared: None, prompt, address: address.clone() };
//! decode.handle(now, Input::Fetch(fetch));
//! assert_eq!(decode.poll_action(), Some(Action::Greet { address: address.clone() }));
//! let sources = BTreeMap::from([(p.agent, BTreeSet::from([Rank(0)]))]);
//! let acquaintance = Acquaintance { engine: p.engine, sources };
//! decode.handle(now, Input::Greeted { address, acquaintance });
//!
//! carry(now, (&mut decode, d), &mut prefill); // the claim
//! carry(now, (&mut prefill, p), &mut decode); // its grant
//! let offered = carry(now, (&mut decode, d), &mut prefill);
//! assert!(matches!(&offered[..], [Event::Offered { .. }]));
//!
//! let read = Action::Read { claim: claim.clone(), peer: p.agent };
//! decode.handle(now, Input::Read { claim: claim.clone(), peers: [p.agent].into() });
//! assert_eq!(decode.poll_action(), Some(read));
//! decode.handle(now, Input::ReadEnded { claim: claim.clone(), peer: p.agent, how: Ok(()) });
//! carry(now, (&mut decode, d), &mut prefill); // the commit
//! let freed = carry(now, (&mut prefill, p), &mut decode); // its answer
//! assert_eq!(freed, [Event::Freed { lease, why: Why::Satisfied }]);
//! assert_eq!(decode.poll_event(), Some(Event::Received { claim }));
//! # Ok(())
//! # }
//! ```

//! What a driver owes the machines, beside carrying out what they say:
//!
//! - A worker's orders arrive in the order in which the scheduler gave them; a withdrawal must
//!   not overtake a lease that was granted before it.
//! - Before memory is taken away, the engine takes in what its workers have said, calls
//!   [`Scheduler::withdraw`], and then tells the workers.
//! - A dead worker of its own is told to the scheduler ([`Scheduler::worker_lost`]) before
//!   anything else is decided; whoever takes its place is told of what begins from then on.
//! - A read's end is reported when nothing can write any more, not when it is cancelled.

#![forbid(unsafe_code)]

mod bounds;
mod claim;
mod class;
pub mod codec;
mod counterparts;
pub mod digest;
mod early;
mod fetches;
pub mod handshake;
mod ids;
mod io;
mod lease;
pub mod limits;
mod loads;
pub mod message;
mod orders;
pub mod params;
mod peers;
mod promises;
mod reads;
mod receive;
mod receives;
mod scheduler;
mod sends;
mod shared;
mod timers;
mod tokens;
mod worker;

pub use bounds::{Bounds, BoundsError, Time};
pub use class::Class;
pub use counterparts::counterparts;
pub use digest::{PromptDigest, PromptIdentity};
pub use ids::{
    AgentEpoch, ClaimId, EngineEpoch, LeaseId, Nonce, Peer, Rank, ReadToken, RequestId,
    RequestIdError,
};
pub use io::{Action, Event, Failure, Fetch, Input, Lease, Offer, ReadFailure, Why};
pub use loads::{Allocation, Ended};
pub use orders::{Order, Word};
pub use peers::Acquaintance;
pub use scheduler::{FinishError, Finished, Outcome, RemotePrefill, Scheduler, UnderWay, sendable};
pub use worker::{Counts, Worker};

#[cfg(test)]
mod tests;
