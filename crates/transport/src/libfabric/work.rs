use super::plan::Segment;
use super::seam::{Action, OperationFault};
use super::{Counter, FabricPeer, Outcome, Plan, WorkError};

/// Names a work; chosen by the caller, and free again once its end was polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId(pub u64);

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkKind {
    /// From the peer's memory into local memory.
    Read,
    /// From local memory into the peer's, which hears nothing of it.
    Write,
    /// The same, and the peer counts the operations: they are [`Plan::operations`] many.
    Counted(Counter),
}

/// Bytes to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The caller's name for it.
    pub id: WorkId,
    /// Whose memory is at the other end.
    pub peer: FabricPeer,
    /// Which way they go.
    pub kind: WorkKind,
    /// Which bytes. None is moved twice, and in no order.
    pub plan: Plan,
}

/// A work under way.
pub(super) struct Running {
    pub(super) peer: FabricPeer,
    kind: WorkKind,
    plan: Plan,
    next: usize,
    /// Operations that were posted and are not over.
    flying: usize,
    /// How it will end, once nothing flies any more, if not well.
    end: Option<Outcome>,
}

impl Running {
    pub(super) fn new(work: Work) -> Self {
        let Work { id: _, peer, kind, plan } = work;
        Self { peer, kind, plan, next: 0, flying: 0, end: None }
    }

    /// The next operation to be posted, if there is one left.
    pub(super) fn next(&self) -> Option<(Action, Segment)> {
        if self.end.is_some() {
            return None;
        }
        let segment = *self.plan.segments().get(self.next)?;
        let action = match self.kind {
            WorkKind::Read => Action::Read,
            WorkKind::Write => Action::Write,
            // It was checked that there are no more than words.
            WorkKind::Counted(counter) => {
                Action::Count(counter.word(u16::try_from(self.next).unwrap_or(u16::MAX)))
            }
        };
        Some((action, segment))
    }

    pub(super) fn posted(&mut self) {
        self.next += 1;
        self.flying += 1;
    }

    pub(super) fn landed(&mut self, result: Result<(), OperationFault>) {
        self.flying -= 1;
        if let Err(OperationFault { code, why }) = result {
            self.give_up(Outcome::Failed(WorkError::Operation { code, why }));
        }
    }

    /// Posts no more. The first reason counts.
    pub(super) fn give_up(&mut self, end: Outcome) {
        self.end.get_or_insert(end);
    }

    /// How it has ended, if it has.
    pub(super) fn ended(&self) -> Option<Outcome> {
        if self.flying > 0 || self.next().is_some() {
            return None;
        }
        Some(self.end.clone().unwrap_or(Outcome::Done))
    }

    /// How it ends where nothing flies any more, whatever did.
    pub(super) fn fenced(&self) -> Outcome {
        self.end.clone().unwrap_or(Outcome::Failed(WorkError::Fenced))
    }

    pub(super) fn uses(&self, memory: u64) -> bool {
        self.plan.segments().iter().any(|segment| segment.memory == memory)
    }
}
