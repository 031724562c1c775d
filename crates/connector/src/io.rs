//! What goes into a [`Worker`](crate::Worker) and what comes out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kv_layout::BlockTable;
use serde::{Deserialize, Serialize};

use crate::class::Class;
use crate::digest::PromptDigest;
use crate::ids::{AgentEpoch, ClaimId, LeaseId, Peer, Rank, ReadToken, RequestId};
use crate::message::{Body, Message};
use crate::params::{Address, RankAddress};
use crate::peers::Acquaintance;

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
    Fetch(Fetch),
    /// D: every rank of an engine has been greeted, and channels to those that this rank speaks
    /// to are open.
    Greeted {
        /// The engine's address, as [`Action::Greet`] named it.
        address: Address,
        /// What the handshakes have shown.
        acquaintance: Acquaintance,
    },
    /// D: an engine cannot be greeted.
    NotGreeted {
        /// Its address.
        address: Address,
        /// Why: [`Failure::Handshake`] or [`Failure::PeerLost`].
        failure: Failure,
    },
    /// D: the engine has blocks for a request that was offered: read.
    Read {
        /// The request.
        claim: ClaimId,
        /// The ranks of P that something is to be read from.
        peers: BTreeSet<AgentEpoch>,
    },
    /// D: one read has ended, one way or the other, and can touch no block any more.
    ReadEnded {
        /// The request.
        claim: ClaimId,
        /// The rank of P that was read.
        peer: AgentEpoch,
        /// How it went.
        how: Result<(), ReadFailure>,
    },
    /// D: a read takes longer than it may, and may still write.
    Overdue(ClaimId),
    /// D: the request is no longer wanted.
    Abort(ClaimId),
    /// The engine is about to take its memory away: end everything, then say
    /// [`Event::Withdrawn`]. Until [`Input::Restored`], nothing new begins.
    Withdraw,
    /// The memory is there again.
    Restored,
}

/// The blocks of one finished prefill, to be kept until [`Event::Freed`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Its name.
    pub id: LeaseId,
    /// What the blocks hold.
    pub prompt: PromptDigest,
    /// The blocks, one table for each KV cache group.
    pub tables: Arc<[BlockTable]>,
}

/// A request whose KV this rank shall fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetch {
    /// Names the request in everything that follows; never used twice.
    pub claim: ClaimId,
    /// The request under whose claim it is read: its own, or one of the same lease that was
    /// fetched before, as [`Scheduler::fetch`](crate::Scheduler::fetch) says to all ranks alike.
    /// `None` leaves that to the worker, which is right for an engine of one rank.
    pub shared: Option<RequestId>,
    /// What the blocks must hold.
    pub prompt: PromptDigest,
    /// Where the engine that has them answers.
    pub address: Address,
}

impl Fetch {
    /// What P is told of a request that nobody here has begun to read.
    pub(crate) fn claim_at_p(&self) -> ClaimId {
        match &self.shared {
            Some(request) => ClaimId { request: request.clone(), ..self.claim.clone() },
            None => self.claim.clone(),
        }
    }
}

/// A request whose engine is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) claim: ClaimId,
    pub(crate) shared: Option<RequestId>,
    pub(crate) prompt: PromptDigest,
    /// The ranks of P to speak to, each with the ranks of D that will read it. This rank must
    /// be among them, or the set empty: then nobody will read and that rank of P is told so.
    pub(crate) sources: BTreeMap<AgentEpoch, BTreeSet<Rank>>,
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
    /// D: shake hands with every rank of the engine at an address, then say
    /// [`Input::Greeted`] or [`Input::NotGreeted`].
    Greet {
        /// Where its ranks answer.
        address: Address,
    },
    /// D: an engine is not known any more, though it is still there: whatever the driver keeps
    /// of it may go. Another request has it greeted anew.
    Forget {
        /// Where its ranks answer.
        ranks: Vec<RankAddress>,
    },
    /// D: read what one rank has offered into the request's blocks, then say
    /// [`Input::ReadEnded`]. It may be asked for once more.
    Read {
        /// The request.
        claim: ClaimId,
        /// The rank of P.
        peer: AgentEpoch,
    },
    /// D: stop such a read, if that can be done; it still says how it ended, when it has.
    Cancel {
        /// The request.
        claim: ClaimId,
        /// The rank of P.
        peer: AgentEpoch,
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
    /// D: everything may be read; answer with [`Input::Read`] once there are blocks for it.
    Offered {
        /// The request.
        claim: ClaimId,
        /// What each rank of P offers, in the order of their epochs.
        offers: Vec<Offer>,
    },
    /// D: the blocks hold what they should. Only now may anybody see them. The last event of a
    /// request, as the next three.
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
    /// D: nothing of this request is to be read at this rank, so nothing will be.
    Nothing {
        /// The request.
        claim: ClaimId,
    },
    /// Nobody may touch the memory any more, neither a peer nor this side.
    Withdrawn,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Why {
    /// All readers of one claim are done.
    Satisfied,
    /// A claimant said that nobody will read.
    Released,
    /// No claim lived for too long, or the lease grew too old.
    Over,
}

/// Why a request was not received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
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
    /// No handshake: the driver knows why.
    #[error("no handshake with the peer")]
    Handshake,
    /// The blocks could not be read.
    #[error("the blocks could not be read: {0}")]
    Read(#[from] ReadFailure),
    /// The memory of this side is being taken away.
    #[error("the memory of this side is withdrawn")]
    Withdrawn,
    /// A rank of this side gave the request up by itself.
    #[error("a rank of this side gave the request up")]
    GivenUp,
    /// This side could not go on by itself, and its driver knows why: the two layouts do not pair,
    /// say. What to do about it is in the class.
    #[error("this side could not receive the request")]
    Local(Class),
}

/// Why a read of one rank of P did not complete.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error, Serialize, Deserialize,
)]
#[non_exhaustive]
pub enum ReadFailure {
    /// The peer lets nobody read these blocks, or no longer.
    #[error("the peer refuses")]
    Refused,
    /// This side cannot ask for it: it is too large, or not of its memory.
    #[error("this side cannot ask for it")]
    Impossible,
    /// The transport failed.
    #[error("the transport failed")]
    Transport,
    /// The way to the peer is gone.
    #[error("the peer is lost")]
    PeerLost,
    /// It took longer than it may.
    #[error("it took too long")]
    Overdue,
    /// It was stopped on purpose.
    #[error("it was stopped")]
    Stopped,
}

impl ReadFailure {
    /// What to do about it.
    #[must_use]
    pub fn class(self) -> Class {
        match self {
            Self::Refused | Self::Transport | Self::Stopped => Class::Retry,
            Self::PeerLost | Self::Overdue => Class::PeerLost,
            Self::Impossible => Class::Bug,
        }
    }

    /// A refusal stands, a lost or slow peer will not be faster, and what was stopped is not
    /// wanted.
    pub(crate) fn is_worth_a_retry(self) -> bool {
        self == Self::Transport
    }
}

impl Failure {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Valid { .. } | Self::Digest => Class::Protocol,
            Self::Unknown | Self::Over | Self::Withdrawn | Self::GivenUp => Class::Retry,
            Self::Read(why) => why.class(),
            Self::NoAnswer | Self::PeerLost | Self::Handshake => Class::PeerLost,
            Self::Local(class) => *class,
        }
    }
}

/// What waits to be taken by the driver, in the order in which it was decided.
#[derive(Debug)]
pub(crate) struct Outbox {
    from: AgentEpoch,
    pub(crate) actions: VecDeque<Action>,
    pub(crate) events: VecDeque<Event>,
    /// Requests whose reads are to be stopped; the worker passes them on.
    pub(crate) stops: Vec<ClaimId>,
}

impl Outbox {
    pub(crate) fn new(from: AgentEpoch) -> Self {
        Self { from, actions: VecDeque::new(), events: VecDeque::new(), stops: Vec::new() }
    }

    pub(crate) fn send(&mut self, to: AgentEpoch, claim: &ClaimId, body: Body) {
        let message = Message { from: self.from, to, claim: claim.clone(), body };
        self.actions.push_back(Action::Send(message));
    }
}
