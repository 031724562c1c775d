//! Writes that have come, counted by the words that they leave.
//!
//! A word has 32 bits, which is what every card carries: 10 name a counter, 6 its use, 16 the write.
//! The last ones make a write that is told of twice count once. A counter is handed out by the
//! target before anybody writes, so a word that fits none is from a use that is over, or a lie.

use super::CounterError;

const SLOT_BITS: u32 = 10;
const USE_BITS: u32 = 6;
const WRITE_BITS: u32 = 16;

/// Writes that one counter tells apart.
pub(super) const MAX_WRITES: usize = 1 << WRITE_BITS;

/// Names one use of a counter of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counter {
    number: u16,
}

impl Counter {
    /// As it travels to the one who writes.
    #[must_use]
    pub fn number(self) -> u16 {
        self.number
    }

    /// As it came from the target.
    #[must_use]
    pub fn of(number: u16) -> Self {
        Self { number }
    }

    /// What a write leaves, by its place among the writes.
    pub(super) fn word(self, write: u16) -> u32 {
        (u32::from(self.number) << WRITE_BITS) | u32::from(write)
    }

    fn new(slot: usize, round: u8) -> Self {
        let slot = u16::try_from(slot).unwrap_or_default();
        Self { number: (slot << USE_BITS) | u16::from(round) }
    }

    fn slot(self) -> usize {
        usize::from(self.number >> USE_BITS)
    }

    fn round(self) -> u8 {
        self.number.to_le_bytes()[0] & ((1 << USE_BITS) - 1)
    }
}

/// All counters of one endpoint.
pub(super) struct Tally {
    slots: Vec<Slot>,
    /// Where the search for a free one begins: the longest unused comes first.
    next: usize,
    /// Words that no counter waits for.
    strays: u64,
}

#[derive(Default)]
struct Slot {
    round: u8,
    open: Option<Count>,
}

/// What has come so far.
#[derive(Default)]
struct Count {
    total: Option<u32>,
    writes: u32,
    /// The highest write that has come.
    last: u32,
    seen: Vec<u64>,
}

impl Tally {
    pub(super) fn new() -> Self {
        let slots = (0..1 << SLOT_BITS).map(|_| Slot::default()).collect();
        Self { slots, next: 0, strays: 0 }
    }

    pub(super) fn open(&mut self) -> Result<Counter, CounterError> {
        let count = self.slots.len();
        let mut order = (self.next..count).chain(0..self.next);
        let free = order.find(|&slot| self.slots[slot].open.is_none());
        let slot = free.ok_or(CounterError::Exhausted)?;
        self.next = (slot + 1) % count;
        let place = &mut self.slots[slot];
        place.open = Some(Count::default());
        Ok(Counter::new(slot, place.round))
    }

    /// Says how many writes there will be; true if all have come already, which ends the use.
    pub(super) fn expect(&mut self, counter: Counter, total: u32) -> Result<bool, CounterError> {
        if total == 0 || total as usize > MAX_WRITES {
            return Err(CounterError::Total { total });
        }
        let slot = self.slot(counter).ok_or(CounterError::Unknown)?;
        let count = slot.open.as_mut().ok_or(CounterError::Unknown)?;
        if let Some(before) = count.total {
            return Err(CounterError::Told { before });
        }
        if count.writes > total || count.last >= total {
            return Err(CounterError::Overrun { total });
        }
        count.total = Some(total);
        Ok(slot.end_if_whole())
    }

    /// Takes a word that was left; gives the counter whose last one it is, which ends its use.
    pub(super) fn arrive(&mut self, word: u32) -> Option<Counter> {
        let [a, b, c, d] = word.to_be_bytes();
        let (number, write) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let counter = Counter::of(number);
        let counted = self
            .slot(counter)
            .and_then(|slot| slot.open.as_mut()?.add(write).then(|| slot.end_if_whole()));
        self.strays += u64::from(counted.is_none());
        counted?.then_some(counter)
    }

    /// Ends a use early.
    pub(super) fn close(&mut self, counter: Counter) {
        if let Some(slot) = self.slot(counter)
            && slot.open.is_some()
        {
            slot.end();
        }
    }

    /// Words that no counter waited for.
    pub(super) fn strays(&self) -> u64 {
        self.strays
    }

    fn slot(&mut self, counter: Counter) -> Option<&mut Slot> {
        self.slots.get_mut(counter.slot()).filter(|slot| slot.round == counter.round())
    }
}

impl Slot {
    fn end_if_whole(&mut self) -> bool {
        let whole = self.open.as_ref().is_some_and(|count| count.total == Some(count.writes));
        if whole {
            self.end();
        }
        whole
    }

    fn end(&mut self) {
        self.open = None;
        self.round = (self.round + 1) % (1 << USE_BITS);
    }
}

impl Count {
    /// False for a write that has come before, or cannot be.
    fn add(&mut self, write: u16) -> bool {
        let (word, bit) = (usize::from(write / 64), 1 << (write % 64));
        if self.total.is_some_and(|total| u32::from(write) >= total) {
            return false;
        }
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        let new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        self.writes += u32::from(new);
        self.last = self.last.max(u32::from(write));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_count_once_in_any_order_and_before_the_total_is_known() {
        for early in 0..=3 {
            let mut tally = Tally::new();
            let counter = tally.open().unwrap();
            let words = [2, 0, 2, 1].map(|write| counter.word(write));
            for word in &words[..early] {
                assert_eq!(tally.arrive(*word), None);
            }
            assert_eq!(tally.expect(counter, 3), Ok(false));
            let whole: Vec<_> = words[early..].iter().map(|word| tally.arrive(*word)).collect();
            assert_eq!(whole.last(), Some(&Some(counter)), "{early}");
            assert_eq!(whole.iter().flatten().count(), 1);
            assert_eq!((tally.strays(), tally.expect(counter, 3)), (1, Err(CounterError::Unknown)));
        }
        let mut tally = Tally::new();
        let counter = tally.open().unwrap();
        (0..3).for_each(|write| assert_eq!(tally.arrive(counter.word(write)), None));
        assert_eq!(tally.expect(counter, 3), Ok(true));
    }

    #[test]
    fn a_word_of_an_earlier_use_counts_for_nobody() {
        let mut tally = Tally::new();
        let first = tally.open().unwrap();
        tally.close(first);
        // Its slot comes round when all others were used.
        let others: Vec<_> = (1..1 << SLOT_BITS).map(|_| tally.open().unwrap()).collect();
        let again = tally.open().unwrap();
        assert_eq!((first.slot(), again.round()), (again.slot(), first.round() + 1));
        assert_eq!(tally.open(), Err(CounterError::Exhausted));
        tally.expect(again, 1).unwrap();
        assert_eq!((tally.arrive(first.word(0)), tally.strays()), (None, 1));
        assert_eq!(tally.arrive(again.word(0)), Some(again));
        assert_eq!((others[0].number(), Counter::of(others[0].number())), (64, others[0]));
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let mut tally = Tally::new();
        let counter = tally.open().unwrap();
        for total in [0, u32::from(u16::MAX) + 2] {
            assert_eq!(tally.expect(counter, total), Err(CounterError::Total { total }));
        }
        tally.arrive(counter.word(5));
        assert_eq!(tally.expect(counter, 5), Err(CounterError::Overrun { total: 5 }));
        assert_eq!(tally.expect(counter, 6), Ok(false));
        assert_eq!(tally.expect(counter, 6), Err(CounterError::Told { before: 6 }));
        assert_eq!((tally.arrive(counter.word(6)), tally.strays()), (None, 1));
        assert_eq!(tally.expect(Counter::of(u16::MAX), 1), Err(CounterError::Unknown));
    }

    #[test]
    fn as_many_writes_as_there_are_words_can_be_counted() {
        let mut tally = Tally::new();
        let counter = tally.open().unwrap();
        tally.expect(counter, u32::from(u16::MAX) + 1).unwrap();
        let ended: Vec<_> =
            (0..=u16::MAX).filter_map(|write| tally.arrive(counter.word(write))).collect();
        assert_eq!(ended, [counter]);
    }
}
