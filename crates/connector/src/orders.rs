//! What a scheduler and its workers tell each other. They may be processes of their own: both
//! can be carried as they are by whatever serde writes and that describes itself, such as JSON. The
//! processes of one engine are of one build, so there is no version in it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{ClaimId, LeaseId};
use crate::io::{Fetch, Lease, Why};
use crate::loads::{Allocation, Ended};

/// What every worker of the engine is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// P: keep the blocks of a lease. Ranks whose block ids differ put in their own tables.
    Keep(Lease),
    /// D: get hold of a request.
    Fetch(Fetch),
    /// D: there are blocks for it. The driver plans when it is offered, and says
    /// [`Input::Read`](crate::Input::Read) then. Ranks whose block ids differ put in their own
    /// tables.
    Read {
        /// The request.
        claim: ClaimId,
        /// Its blocks.
        blocks: Arc<Allocation>,
    },
    /// D: it is not wanted any more.
    Abort(ClaimId),
}

/// What a worker tells its scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// P: the blocks of this lease may be used again, as far as this rank is concerned.
    Freed {
        /// The lease.
        lease: LeaseId,
        /// How it ended.
        why: Why,
    },
    /// D: this rank's last word on a request.
    Ended {
        /// The request.
        claim: ClaimId,
        /// How it ended.
        how: Ended,
    },
}
