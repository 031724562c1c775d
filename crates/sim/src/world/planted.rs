//! Mistakes to make on purpose, around the machines: an oracle must see each.

use std::fmt;
use std::str::FromStr;

/// One kind of mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// P gives blocks back before its workers have said so.
    FreeEarly,
    /// P gives blocks back twice.
    FreeTwice,
    /// P looks a lease up by its prompt and not by its nonce.
    IgnoreNonce,
    /// D publishes what it has read without asking P whether it counts.
    SkipCommit,
    /// P does not hear that a reader is done.
    DropDone,
    /// P takes one reader's notice for those of all readers.
    CountTwice,
    /// D's engine hears of the same end twice.
    ReportTwice,
    /// D reads the blocks that the parameters name.
    TrustParams,
    /// D does not compare digests.
    SkipDigest,
    /// P honours leases of the life before.
    OldEpoch,
    /// D uses blocks again when a read of them has been overdue for long enough.
    FreeByClock,
    /// D says that it is done when the first of several samples is.
    DoneEarly,
    /// D claims for each sample.
    ClaimEach,
}

/// Each with its name.
pub const PLANTED: [(Planted, &str); 13] = [
    (Planted::FreeEarly, "free-early"),
    (Planted::FreeTwice, "free-twice"),
    (Planted::IgnoreNonce, "ignore-nonce"),
    (Planted::SkipCommit, "skip-commit"),
    (Planted::DropDone, "drop-done"),
    (Planted::CountTwice, "count-twice"),
    (Planted::ReportTwice, "report-twice"),
    (Planted::TrustParams, "trust-params"),
    (Planted::SkipDigest, "skip-digest"),
    (Planted::OldEpoch, "old-epoch"),
    (Planted::FreeByClock, "free-by-clock"),
    (Planted::DoneEarly, "done-early"),
    (Planted::ClaimEach, "claim-each"),
];

/// A word that names no mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is no planted mistake")]
pub struct PlantedError {
    /// The word.
    pub word: String,
}

impl fmt::Display for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = PLANTED.iter().find(|(planted, _)| planted == self).map(|(_, name)| *name);
        f.write_str(name.unwrap_or_default())
    }
}

impl FromStr for Planted {
    type Err = PlantedError;

    fn from_str(word: &str) -> Result<Self, PlantedError> {
        let found = PLANTED.iter().find(|(_, name)| *name == word);
        found.map(|(planted, _)| *planted).ok_or(PlantedError { word: word.to_owned() })
    }
}
