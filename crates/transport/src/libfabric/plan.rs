use std::sync::Arc;

use super::PlanError;

/// Operations of one plan.
const MAX_SEGMENTS: usize = 1 << 20;

/// Parts of one memory that a peer may tell of.
pub(super) const MAX_PARTS: u64 = 1 << 16;

/// How a part of registered memory is named by those who reach for it from afar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The key that the card asks for. Who knows it may reach the part.
    pub key: u64,
    /// What its first byte is called there.
    pub base: u64,
}

/// Memory that peers can reach, as they are told of it: these three numbers and lists are what
/// travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    len: u64,
    grain: u64,
    exposures: Arc<[Exposure]>,
}

impl RemoteMemory {
    /// `len` bytes in parts of `grain`, of which the last may be shorter; `None` if the numbers
    /// do not go together, as they may when they come from a peer.
    #[must_use]
    pub fn new(len: u64, grain: u64, exposures: &[Exposure]) -> Option<Self> {
        let parts = len.checked_add(grain.checked_sub(1)?)?.checked_div(grain)?;
        let told = u64::try_from(exposures.len()).ok()?;
        let fit = exposures.iter().all(|part| part.base.checked_add(grain.min(len)).is_some());
        let good = len > 0 && parts == told && parts <= MAX_PARTS && fit;
        good.then(|| Self { len, grain, exposures: exposures.into() })
    }

    /// Its bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has none, which is never so.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of each part but the last.
    #[must_use]
    pub fn grain(&self) -> u64 {
        self.grain
    }

    /// The parts, in their order.
    #[must_use]
    pub fn exposures(&self) -> &[Exposure] {
        &self.exposures
    }
}

/// Memory that is registered with a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalMemory {
    pub(super) id: u64,
    pub(super) exposed: RemoteMemory,
}

impl LocalMemory {
    /// How peers reach it, for them to be told.
    #[must_use]
    pub fn exposed(&self) -> &RemoteMemory {
        &self.exposed
    }
}

/// Bytes that belong together on both sides, whichever way they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// First byte in the local memory.
    pub local: u64,
    /// First byte in the remote memory.
    pub remote: u64,
    /// Bytes.
    pub len: u64,
}

/// One operation: contiguous on both sides, inside one part of each, and no larger than the card
/// takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) memory: u64,
    pub(super) grain: u64,
    /// From the start of the local memory.
    pub(super) offset: u64,
    pub(super) key: u64,
    pub(super) address: u64,
    pub(super) len: u64,
}

impl Segment {
    fn is_followed_by(&self, next: &Self) -> bool {
        let end = self.offset + self.len;
        let local = self.memory == next.memory && end == next.offset;
        let remote = self.key == next.key && self.address + self.len == next.address;
        local && remote && !end.is_multiple_of(self.grain)
    }
}

/// Moves, lowered to the operations of one card: made by [`Driver::plan`](super::Driver::plan).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    limit: u64,
    segments: Vec<Segment>,
    bytes: u64,
}

impl Plan {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit: limit.max(1), segments: Vec::new(), bytes: 0 }
    }

    /// Adds a move. One that goes on where the last one ended, on both sides, becomes one with it.
    ///
    /// # Errors
    /// Bytes that a memory does not have, or too many operations; the plan may then have a part of
    /// the move, and is of no more use.
    pub fn add(
        &mut self,
        local: &LocalMemory,
        remote: &RemoteMemory,
        bytes: Move,
    ) -> Result<(), PlanError> {
        let (from, len) = (&local.exposed, bytes.len);
        let end = bytes.local.saturating_add(len);
        if end > from.len {
            return Err(PlanError::Local { end, len: from.len });
        }
        let end = bytes.remote.saturating_add(len);
        if end > remote.len {
            return Err(PlanError::Remote { end, len: remote.len });
        }
        let mut done = 0;
        while done < len {
            let (offset, place) = (bytes.local + done, bytes.remote + done);
            let (ours, theirs) =
                (from.grain - offset % from.grain, remote.grain - place % remote.grain);
            let part = usize::try_from(place / remote.grain).ok();
            let Some(part) = part.and_then(|part| remote.exposures.get(part)) else {
                return Err(PlanError::Remote { end, len: remote.len });
            };
            let len = (len - done).min(ours).min(theirs);
            let address = part.base + place % remote.grain;
            let (memory, grain, key) = (local.id, from.grain, part.key);
            self.push(Segment { memory, grain, offset, key, address, len })?;
            done += len;
        }
        Ok(())
    }

    fn push(&mut self, mut next: Segment) -> Result<(), PlanError> {
        self.bytes = self.bytes.saturating_add(next.len);
        if let Some(last) = self.segments.last_mut()
            && last.is_followed_by(&next)
        {
            let more = next.len.min(self.limit - last.len);
            last.len += more;
            next = next.skip(more);
        }
        while next.len > 0 {
            if self.segments.len() >= MAX_SEGMENTS {
                return Err(PlanError::TooMany { most: MAX_SEGMENTS });
            }
            let len = next.len.min(self.limit);
            self.segments.push(Segment { len, ..next });
            next = next.skip(len);
        }
        Ok(())
    }

    /// How many operations there are: what the target of a counted write waits for.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.segments.len()
    }

    /// How many bytes they move.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }
}

impl Segment {
    fn skip(self, len: u64) -> Self {
        let (offset, address) = (self.offset + len, self.address + len);
        Self { offset, address, len: self.len - len, ..self }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
