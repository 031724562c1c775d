//! What goes into a [`Worker`](crate::Worker) and what comes out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kv_layout::BlockTable;

use crate::class::Class;
use crate::digest::PromptDigest;
use crate::ids::{AgentEpoch, ClaimId, LeaseId, Peer, Rank, ReadToken};
use crate::message::{Body, Message};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// P: the scheduler promises to keep blocks. A lease that is already known is ignored.
    Lease(Lease),
    /// A message came over the control channel.
    Message {
        /// Who is at the other end, as the handshake proved it.
        from: Peer,
        /// The message.
        message: Message,
    },
    /// A peer is gone for good; if it comes back it is another agent.
    PeerLost(AgentEpoch),
    /// P: nothing is sent under this token any more.
    Revoked(ReadToken),
    /// D: fetch a request. One that is already under way is ignored.
    Start(Start),
    /// D: every read of an offer is complete.
    ReadsDone(ClaimId),
    /// D: the reads of an offer failed or were stopped, and none can touch the blocks any more.
    ReadsFailed(ClaimId),
    /// D: the request is no longer wanted.
    Abort(ClaimId),
}

/// The blocks of one finished prefill, to be kept until [`Event::Freed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its name.
    pub id: LeaseId,
    /// What the blocks hold.
    pub prompt: PromptDigest,
    /// The blocks, one table for each KV cache group.
    pub tables: Arc<[BlockTable]>,
}

/// A request whose KV this rank shall fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Names the request in everything that follows; never used twice.
    pub claim: ClaimId,
    /// What the blocks must hold.
    pub prompt: PromptDigest,
    /// The ranks of P to speak to, each with the ranks of D that will read it. This rank must
    /// be among them, or the set empty: then nobody will read and that rank of P is told so.
    pub sources: BTreeMap<AgentEpoch, BTreeSet<Rank>>,
}

/// What the driver must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message; to a peer that is gone, drop it.
    Send(Message),
    /// P: from now on, let `reader` read these blocks. The answer that tells it so comes later.
    Grant {
        /// Who may read.
        reader: AgentEpoch,
        /// What it will show.
        token: ReadToken,
        /// What it may read.
        tables: Arc<[BlockTable]>,
    },
    /// P: cut what is sent under this token, then say [`Input::Revoked`].
    Revoke {
        /// The token.
        token: ReadToken,
    },
    /// D: stop the reads of this offer and start no more, then say [`Input::ReadsFailed`].
    /// It waits for the transfers' own ends, never for a clock.
    StopReads {
        /// The request.
        claim: ClaimId,
    },
}

/// What the engine must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// P: the blocks of this lease may be used again.
    Freed {
        /// The lease.
        lease: LeaseId,
        /// How it ended.
        why: Why,
    },
    /// D: everything may be read; answer with [`Input::ReadsDone`] or [`Input::ReadsFailed`].
    Offered {
        /// The request.
        claim: ClaimId,
        /// What each rank of P offers, in the order of their epochs.
        offers: Vec<Offer>,
    },
    /// D: the blocks hold what they should. Only now may anybody see them. The last event of a
    /// request, as the next two.
    Received {
        /// The request.
        claim: ClaimId,
    },
    /// D: nothing was received; the blocks may be used again.
    Failed {
        /// The request.
        claim: ClaimId,
        /// Why.
        failure: Failure,
    },
    /// D: given up as wished; the blocks may be used again.
    Released {
        /// The request.
        claim: ClaimId,
    },
}

/// What one rank of P lets this rank read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Whom to read from.
    pub peer: AgentEpoch,
    /// What to show it.
    pub token: ReadToken,
    /// Time until the claim lapses if no renewal is answered from now on.
    pub left: Duration,
    /// Its blocks, one table for each of its KV cache groups.
    pub tables: Arc<[BlockTable]>,
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// All readers of one claim are done.
    Satisfied,
    /// A claimant said that nobody will read.
    Released,
    /// No claim lived for too long, or the lease grew too old.
    Over,
}

/// Why a request was not received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// P holds another number of tokens than this request needs.
    #[error("the peer holds {theirs} tokens, this request needs {ours}")]
    Valid {
        /// Tokens that were expected.
        ours: u64,
        /// Tokens that P holds.
        theirs: u64,
    },
    /// P's blocks are those of another prompt, model or adapter.
    #[error("the peer's blocks belong to another prompt, model or adapter")]
    Digest,
    /// P has no such lease.
    #[error("the peer has no such lease")]
    Unknown,
    /// The claim ended at P before every read was committed.
    #[error("the claim ended before the reads were committed")]
    Over,
    /// P did not answer in time.
    #[error("the peer did not answer in time")]
    NoAnswer,
    /// P is gone.
    #[error("the peer is lost")]
    PeerLost,
    /// The driver could not read.
    #[error("the blocks could not be read")]
    Read,
}

impl Failure {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Valid { .. } | Self::Digest => Class::Protocol,
            Self::Unknown | Self::Over | Self::Read => Class::Retry,
            Self::NoAnswer | Self::PeerLost => Class::PeerLost,
        }
    }
}

/// What waits to be taken by the driver, in the order in which it was decided.
#[derive(Debug)]
pub(crate) struct Outbox {
    from: AgentEpoch,
    pub(crate) actions: VecDeque<Action>,
    pub(crate) events: VecDeque<Event>,
}

impl Outbox {
    pub(crate) fn new(from: AgentEpoch) -> Self {
        Self { from, actions: VecDeque::new(), events: VecDeque::new() }
    }

    pub(crate) fn send(&mut self, to: AgentEpoch, claim: &ClaimId, body: Body) {
        let message = Message { from: self.from, to, claim: claim.clone(), body };
        self.actions.push_back(Action::Send(message));
    }
}
