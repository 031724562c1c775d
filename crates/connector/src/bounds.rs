use std::time::Duration;

use crate::class::Class;
use crate::limits::MAX_BOUND;

/// A moment: the time since a start that the driver chooses and never changes. Only
/// differences matter; it never travels.
pub type Time = Duration;

/// How long each state may last, a day ([`MAX_BOUND`]) at most. The defaults are the
/// protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// P keeps a lease that has no living claim for this long.
    pub unclaimed: Duration,
    /// D renews a claim this often.
    pub renew_every: Duration,
    /// P lets a claim live this long after the last answered renewal.
    pub claim_life: Duration,
    /// P ends claims and leases of this age, however often they are renewed.
    pub oldest: Duration,
    /// P answers for a lease that it does not know yet within this time.
    pub pending: Duration,
    /// D waits this long for the last answer to a claim or to a commit.
    pub answer: Duration,
    /// D waits this long for the handshakes with an engine.
    pub greeting: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            unclaimed: Duration::from_secs(30),
            renew_every: Duration::from_secs(5),
            claim_life: Duration::from_secs(20),
            oldest: Duration::from_secs(600),
            pending: Duration::from_secs(2),
            answer: Duration::from_secs(5),
            greeting: Duration::from_secs(10),
        }
    }
}

/// Bounds that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BoundsError {
    /// A state that would end at once.
    #[error("`{field}` must be longer than zero")]
    Zero {
        /// Name of the bound.
        field: &'static str,
    },
    /// A state that would last longer than [`MAX_BOUND`].
    #[error("`{field}` must be a day at most")]
    TooLong {
        /// Name of the bound.
        field: &'static str,
    },
    /// Two bounds in the wrong order.
    #[error("`{short}` must be shorter than `{long}`")]
    Order {
        /// What must be shorter.
        short: &'static str,
        /// What must be longer.
        long: &'static str,
    },
}

impl BoundsError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        Class::Config
    }
}

impl Bounds {
    /// Refuses bounds under which no hand-off could succeed.
    pub(crate) fn checked(self) -> Result<Self, BoundsError> {
        let named = [
            ("unclaimed", self.unclaimed),
            ("renew_every", self.renew_every),
            ("pending", self.pending),
            ("greeting", self.greeting),
        ];
        if let Some((field, _)) = named.into_iter().find(|(_, bound)| bound.is_zero()) {
            return Err(BoundsError::Zero { field });
        }
        let ordered = [
            ("renew_every", self.renew_every, "claim_life", self.claim_life),
            ("claim_life", self.claim_life, "oldest", self.oldest),
            ("unclaimed", self.unclaimed, "oldest", self.oldest),
            ("pending", self.pending, "answer", self.answer),
        ];
        match ordered.into_iter().find(|(_, short, _, long)| short >= long) {
            Some((short, _, long, _)) => Err(BoundsError::Order { short, long }),
            None => self.short_enough(),
        }
    }

    /// All but `greeting` are below `oldest` or `answer`.
    fn short_enough(self) -> Result<Self, BoundsError> {
        let longest =
            [("oldest", self.oldest), ("answer", self.answer), ("greeting", self.greeting)];
        match longest.into_iter().find(|(_, bound)| *bound > MAX_BOUND) {
            Some((field, _)) => Err(BoundsError::TooLong { field }),
            None => Ok(self),
        }
    }
}
