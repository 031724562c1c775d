//! What moved the blocks.

use std::fmt;

use kvferry::Path;
use serde::{Deserialize, Serialize};

/// How many pairs of ranks each provider serves.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ways {
    shm: usize,
    tcp: usize,
}

impl Ways {
    pub(super) fn of(paths: &[Path]) -> Self {
        let by = |name: &str| paths.iter().filter(|path| path.provider == name).count();
        Self { shm: by("shm"), tcp: by("tcp") }
    }

    /// With those of another rank.
    pub(super) fn and(self, other: Self) -> Self {
        Self { shm: self.shm + other.shm, tcp: self.tcp + other.tcp }
    }

    /// With those of another request of the same ranks.
    pub(crate) fn or(self, other: Self) -> Self {
        Self { shm: self.shm.max(other.shm), tcp: self.tcp.max(other.tcp) }
    }
}

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHM: &str = "shm, out of the prefill process's memory";
        match (self.shm, self.tcp) {
            (0, 0) => f.write_str("nothing"),
            (_, 0) => f.write_str(SHM),
            (0, _) => f.write_str("tcp"),
            (shm, tcp) => write!(f, "{SHM}, between {shm} pairs of ranks, and tcp between {tcp}"),
        }
    }
}
