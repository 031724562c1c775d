use std::sync::Arc;

use strided::{Blocks, Range, Walk};

use crate::Registration;
use crate::registry::Bound;

/// What blocks lie in: a region of memory, this process's or another's.
pub(crate) trait Ground {
    /// Contiguous bytes of it.
    type Run<'a>
    where
        Self: 'a;

    fn block_stride(&self) -> u64;

    /// The bytes of `range`, or `None` if the memory does not have them.
    fn run(&self, range: Range) -> Option<Self::Run<'_>>;
}

/// One side of a transfer: an ordered run of bytes, scattered over memory, which stays alive
/// with it.
pub(crate) struct Scatter<G = Bound> {
    pieces: Vec<Piece<G>>,
    bytes: u64,
}

struct Piece<G> {
    bound: Arc<G>,
    blocks: Blocks,
    /// Position of the first byte within the scatter.
    start: u64,
}

impl<G: Ground> Scatter<G> {
    /// The blocks one after the other, each in its bound region; `None` when the byte count
    /// does not fit 64 bits.
    pub(crate) fn new(parts: impl IntoIterator<Item = (Arc<G>, Blocks)>) -> Option<Self> {
        let mut scatter = Self { pieces: Vec::new(), bytes: 0 };
        for (bound, blocks) in parts {
            let start = scatter.bytes;
            scatter.bytes = start.checked_add(blocks.bytes())?;
            scatter.pieces.push(Piece { bound, blocks, start });
        }
        Some(scatter)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A cursor that stands at byte `at`.
    pub(crate) fn cursor(&self, at: u64) -> Cursor<'_, G> {
        // The last piece that starts at or before `at`; empty ones are stepped over later.
        let index = self.pieces.partition_point(|piece| piece.start <= at).saturating_sub(1);
        let mut cursor =
            Cursor { pieces: self.pieces.get(index..).unwrap_or_default(), walk: None };
        cursor.enter(at);
        cursor
    }
}

impl Scatter {
    pub(crate) fn uses(&self, registration: Registration) -> bool {
        self.pieces.iter().any(|piece| piece.bound.registration() == registration)
    }

    /// Copies byte for byte into another scatter.
    pub(crate) fn copy_to(&self, target: &Self) {
        let (mut from, mut to) = (self.cursor(0), target.cursor(0));
        while let Some(piece) = from.next_slice(u64::MAX) {
            let mut rest = Some(piece);
            while let Some(bytes) = rest {
                let Some(place) = to.next_slice(bytes.len() as u64) else { return };
                bytes.copy_to(place);
                rest = bytes.skip(place.len());
            }
        }
    }
}

/// Walks the contiguous memory of a [`Scatter`].
pub(crate) struct Cursor<'a, G = Bound> {
    pieces: &'a [Piece<G>],
    walk: Option<Walk>,
}

impl<'a, G: Ground> Cursor<'a, G> {
    fn enter(&mut self, at: u64) {
        self.walk = self.pieces.first().map(|piece| {
            let mut walk = piece.blocks.walk(piece.bound.block_stride());
            walk.seek(at - piece.start);
            walk
        });
    }

    /// The next contiguous bytes, at most `limit`; `None` at the end.
    pub(crate) fn next_slice(&mut self, limit: u64) -> Option<G::Run<'a>> {
        loop {
            let piece = self.pieces.first()?;
            if let Some(range) = next_run(self.walk.as_mut()?, limit) {
                return piece.bound.run(range);
            }
            if limit == 0 {
                return None;
            }
            self.pieces = self.pieces.get(1..)?;
            let start = self.pieces.first()?.start;
            self.enter(start);
        }
    }
}

/// Takes contiguous bytes, over as many elements as continue each other.
fn next_run(walk: &mut Walk, limit: u64) -> Option<Range> {
    let mut run = walk.take_up_to(limit)?;
    while walk.peek().is_some_and(|next| run.offset.checked_add(run.len) == Some(next.offset)) {
        match walk.take_up_to(limit - run.len) {
            Some(more) => run.len += more.len,
            None => break,
        }
    }
    Some(run)
}
