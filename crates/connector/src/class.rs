use serde::{Deserialize, Serialize};

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Class {
    /// This hand-off is lost; another one, or computing the tokens again, may work.
    Retry,
    /// The peer is gone; what was asked of it must go elsewhere.
    PeerLost,
    /// The other side said what it must not say.
    Protocol,
    /// The two sides, or the settings, do not fit; trying again will not help.
    Config,
    /// A limit was reached.
    Exhausted,
    /// The caller used this crate wrongly.
    Bug,
}
