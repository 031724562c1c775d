use crate::Blocks;

/// Contiguous bytes of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// First byte, from the start of the region.
    pub offset: u64,
    /// Length in bytes, never 0.
    pub len: u64,
}

/// A cursor over the ranges of [`Blocks`], in copy order. It allocates nothing, can stop in
/// the middle of a range and can seek, so a mover takes bytes in whatever portions suit it.
///
/// Offsets saturate at the end of 64 bits; a walk over blocks that passed
/// [`Region::check`](crate::Region::check) never gets there.
#[derive(Clone, Debug)]
pub struct Walk {
    blocks: Blocks,
    block_stride: u64,
    /// Position in the list of ids.
    block: usize,
    /// Element within the block, and bytes of it that are behind the cursor.
    element: u64,
    within: u64,
    /// Offset of the current element in its block, kept because finding it divides.
    element_offset: u64,
}

impl Walk {
    pub(crate) fn new(blocks: Blocks, block_stride: u64) -> Self {
        let element_offset = blocks.pattern().offset();
        Self { blocks, block_stride, block: 0, element: 0, within: 0, element_offset }
    }

    /// The contiguous rest at the cursor, or `None` at the end.
    #[must_use]
    pub fn peek(&self) -> Option<Range> {
        let id = u64::from(*self.blocks.ids().get(self.block)?);
        let offset =
            id.saturating_mul(self.block_stride).saturating_add(self.element_offset + self.within);
        Some(Range { offset, len: self.blocks.pattern().element_len() - self.within })
    }

    /// Takes at most `limit` contiguous bytes; `None` at the end or when `limit` is 0.
    pub fn take_up_to(&mut self, limit: u64) -> Option<Range> {
        let rest = self.peek()?;
        let len = rest.len.min(limit);
        if len == 0 {
            return None;
        }
        if len < rest.len {
            self.within += len;
        } else {
            self.step();
        }
        Some(Range { len, ..rest })
    }

    /// Moves to the next element.
    fn step(&mut self) {
        self.within = 0;
        self.element += 1;
        if self.element == self.blocks.pattern().elements() {
            self.element = 0;
            self.block += 1;
        }
        self.element_offset = self.blocks.pattern().element(self.element);
    }

    /// Puts the cursor `bytes` after the start of the walk, or at its end if that is nearer.
    pub fn seek(&mut self, bytes: u64) {
        let pattern = self.blocks.pattern();
        let block = bytes / pattern.bytes();
        let rest = bytes % pattern.bytes();
        self.block = usize::try_from(block).unwrap_or(usize::MAX).min(self.blocks.ids().len());
        self.element = rest / pattern.element_len();
        self.within = rest % pattern.element_len();
        self.element_offset = pattern.element(self.element);
    }
}

impl Iterator for Walk {
    type Item = Range;

    fn next(&mut self) -> Option<Range> {
        self.take_up_to(u64::MAX)
    }
}
