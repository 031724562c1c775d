use crate::scatter::{Cursor, Ground, Scatter};

/// Bytes of a portion: the unit of fairness between transfers and of work between threads.
/// Both sides of a connection over TCP count in it, so it belongs to that protocol.
pub(crate) const PORTION: u32 = 2 << 20;

/// Bytes of one side of a transfer that are moved in one run.
pub(crate) struct Portion<'a, G: Ground> {
    scatter: &'a Scatter<G>,
    /// Position of the first byte in the scatter.
    at: u64,
    len: u32,
}

impl<G: Ground> Clone for Portion<'_, G> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<G: Ground> Copy for Portion<'_, G> {}

impl<'a, G: Ground> Portion<'a, G> {
    /// How many portions there are.
    pub(crate) fn count(scatter: &Scatter<G>) -> u64 {
        scatter.bytes().div_ceil(u64::from(PORTION))
    }

    /// The portion of that index, if there are so many.
    pub(crate) fn nth(scatter: &'a Scatter<G>, index: u64) -> Option<Self> {
        let at = index.checked_mul(u64::from(PORTION))?;
        let rest = scatter.bytes().checked_sub(at).filter(|&rest| rest > 0)?;
        let len = u32::try_from(rest).map_or(PORTION, |rest| rest.min(PORTION));
        Some(Self { scatter, at, len })
    }

    pub(crate) fn len(self) -> u32 {
        self.len
    }

    /// A cursor that stands at its first byte.
    pub(crate) fn cursor(self) -> Cursor<'a, G> {
        self.scatter.cursor(self.at)
    }
}
