//! Names of operations in flight, so that none is taken for another that had its place before.

use std::collections::VecDeque;

/// Names one operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Token {
    pub(super) slot: u32,
    /// Counts up with each use of the slot.
    pub(super) generation: u32,
}

/// So many places, and what is in them.
pub(super) struct Slots<T> {
    places: Vec<(u32, Option<T>)>,
    /// The longest unused comes first, so that a late report finds nothing in its place.
    free: VecDeque<u32>,
}

impl<T> Slots<T> {
    pub(super) fn new(count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let places = (0..count).map(|_| (0, None)).collect();
        Self { places, free: (0..count).collect() }
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// A place for what is given, if there is one.
    pub(super) fn take(&mut self, content: T) -> Option<Token> {
        let slot = self.free.pop_front()?;
        let (generation, place) = self.places.get_mut(slot as usize)?;
        *generation = generation.wrapping_add(1);
        *place = Some(content);
        Some(Token { slot, generation: *generation })
    }

    /// What was put there under this very name, which is over with it.
    pub(super) fn give_back(&mut self, token: Token) -> Option<T> {
        let (generation, place) = self.places.get_mut(token.slot as usize)?;
        let content = (*generation == token.generation).then(|| place.take())??;
        self.free.push_back(token.slot);
        Some(content)
    }

    /// Frees all places; no name from before means anything any more.
    pub(super) fn clear(&mut self) {
        for (slot, (_, place)) in (0..).zip(&mut self.places) {
            if place.take().is_some() {
                self.free.push_back(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_good_once() {
        let mut slots = Slots::new(2);
        let (a, b) = (slots.take('a').unwrap(), slots.take('b').unwrap());
        assert!(slots.is_full() && slots.take('c').is_none());
        assert_eq!(slots.give_back(a), Some('a'));
        assert_eq!(slots.give_back(a), None);
        let c = slots.take('c').unwrap();
        assert_eq!((c.slot, slots.is_full()), (a.slot, true));
        // The place is another's now.
        assert_eq!(slots.give_back(a), None);
        slots.clear();
        assert_eq!((slots.free.len(), slots.give_back(b), slots.give_back(c)), (2, None, None));
        assert_eq!(slots.give_back(Token { slot: 9, generation: 0 }), None);
    }

    #[test]
    fn the_longest_unused_place_is_taken_first() {
        let mut slots = Slots::new(3);
        let first = slots.take('a').unwrap();
        slots.give_back(first);
        let next: Vec<u32> = (0..3).map(|_| slots.take('b').unwrap().slot).collect();
        assert_eq!(next, [1, 2, first.slot]);
    }
}
