use crate::{Range, RangePair};

/// Something that a following piece may continue.
pub trait MergeRuns: Sized {
    /// Both as one, if `next` starts where `self` ends.
    fn join(&self, next: &Self) -> Option<Self>;

    /// Fuses neighbours of an iterator that continue each other.
    fn merged<I: Iterator<Item = Self>>(pieces: I) -> Merged<I> {
        Merged { pieces, held: None }
    }
}

impl MergeRuns for Range {
    fn join(&self, next: &Self) -> Option<Self> {
        (self.offset.checked_add(self.len)? == next.offset)
            .then_some(Self { offset: self.offset, len: self.len.checked_add(next.len)? })
    }
}

impl MergeRuns for RangePair {
    fn join(&self, next: &Self) -> Option<Self> {
        let follows = self.source.checked_add(self.len)? == next.source
            && self.target.checked_add(self.len)? == next.target;
        follows.then_some(Self { len: self.len.checked_add(next.len)?, ..*self })
    }
}

/// Iterator of [`MergeRuns::merged`]; allocates nothing.
#[derive(Clone, Debug)]
pub struct Merged<I: Iterator> {
    pieces: I,
    held: Option<I::Item>,
}

impl<I> Iterator for Merged<I>
where
    I: Iterator,
    I::Item: MergeRuns,
{
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let mut run = self.held.take().or_else(|| self.pieces.next())?;
        for piece in self.pieces.by_ref() {
            match run.join(&piece) {
                Some(longer) => run = longer,
                None => {
                    self.held = Some(piece);
                    break;
                }
            }
        }
        Some(run)
    }
}
