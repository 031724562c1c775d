//! The hand-off protocol as state machines without I/O, threads or clocks.
//!
//! 1. P finishes a prefill: [`Scheduler::finish`] gives a [`Lease`] for each [`Worker`] of P and
//!    [parameters](params) for the router.
//! 2. D's [`Scheduler::admit`] reads the parameters, D's workers shake hands with P's
//!    ([`handshake`]) and claim ([`Input::Start`]), while the request is still queued.
//! 3. P answers with the block tables, a read token and the [digest] of the prompt; D
//!    compares the digest and tells its driver what to read ([`Event::Offered`]).
//! 4. The driver plans and reads, while the claim is renewed, and says [`Input::ReadsDone`].
//! 5. D commits: only where P still kept the blocks then ([`Answer::Alive`](message::Answer))
//!    do they count ([`Event::Received`]); no clock has a say in that.
//! 6. P frees ([`Event::Freed`]) when no claim lives, the lease is satisfied, released or over,
//!    and nothing is sent under any of its tokens any more.
//!
//! The driver carries [`Message`](message::Message)s, as frames of the [`codec`], and the time:
//!
//! ```
//! use std::collections::{BTreeMap, BTreeSet};
//!
//! use connector::message::Message;
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
//!             Action::Grant { .. } | Action::StopReads { .. } => {}
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
//!
//! let now = Time::ZERO;
//! prefill.handle(now, Input::Lease(Lease { id: lease.clone(), prompt, tables: [].into() }));
//! let sources = BTreeMap::from([(p.agent, BTreeSet::from([Rank(0)]))]);
//! decode.handle(now, Input::Start(Start { claim: claim.clone(), prompt, sources }));
//!
//! carry(now, (&mut decode, d), &mut prefill); // the claim
//! carry(now, (&mut prefill, p), &mut decode); // its grant
//! let offered = carry(now, (&mut decode, d), &mut prefill);
//! assert!(matches!(&offered[..], [Event::Offered { .. }]));
//!
//! decode.handle(now, Input::ReadsDone(claim.clone()));
//! carry(now, (&mut decode, d), &mut prefill); // the commit
//! let freed = carry(now, (&mut prefill, p), &mut decode); // its answer
//! assert_eq!(freed, [Event::Freed { lease, why: Why::Satisfied }]);
//! assert_eq!(decode.poll_event(), Some(Event::Received { claim }));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod bounds;
mod claim;
mod class;
pub mod codec;
mod counterparts;
pub mod digest;
mod early;
pub mod handshake;
mod ids;
mod io;
mod lease;
pub mod limits;
pub mod message;
pub mod params;
mod receive;
mod receives;
mod scheduler;
mod sends;
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
pub use io::{Action, Event, Failure, Input, Lease, Offer, Start, Why};
pub use scheduler::{FinishError, Finished, RemotePrefill, Scheduler};
pub use worker::{Counts, Worker};

#[cfg(test)]
mod tests;
