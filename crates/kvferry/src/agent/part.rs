//! What an agent does for its engine.

use connector::{LeaseId, Why};
use tokio::sync::mpsc;

use super::greetings::{Greeted, Greetings};

/// A lease whose blocks may be reused.
pub(crate) type FreedLease = (LeaseId, Why);

/// What an agent does for its engine.
pub(super) enum Part {
    /// Reports the leases whose blocks may be reused.
    Prefill(mpsc::UnboundedSender<FreedLease>),
    /// Greets prefill engines.
    Decode(Box<Greetings>),
}

impl Part {
    /// Asks the greetings, where there are some.
    pub(super) fn greetings<T>(&mut self, ask: impl FnOnce(&mut Greetings) -> T) -> Option<T> {
        match self {
            Self::Prefill(_) => None,
            Self::Decode(greetings) => Some(ask(greetings)),
        }
    }

    /// The next greeting that has come to its end.
    pub(super) async fn greeted(&mut self) -> Greeted {
        match self {
            Self::Prefill(_) => std::future::pending().await,
            Self::Decode(greetings) => greetings.next().await,
        }
    }
}
