/// Takes numbers from an input; at its end all are 0, so that every input means something.
#[derive(Clone, Debug)]
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// From the first byte on.
    #[must_use]
    pub fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that is left.
    #[must_use]
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// A number below `count`, which is 256 at most.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    /// A number of `low ..= high`, few apart.
    pub fn within(&mut self, low: u32, high: u32) -> u32 {
        low + u32::from(self.byte()) % (high - low + 1)
    }

    /// One in so many times.
    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == one_in - 1
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A number that somebody may send: the ends of the range as often as anything between.
    pub fn number(&mut self) -> u64 {
        let kind = self.byte();
        let small = u64::from(kind >> 3);
        match kind & 7 {
            0 => small,
            1 => u64::from(u32::MAX) - small,
            2 => u64::MAX - small,
            3 => 1 << (2 * small),
            4 => (1 << (2 * small)) - 1,
            5 => u64::from(self.byte()),
            6 => u32::from_le_bytes(self.array()).into(),
            _ => u64::from_le_bytes(self.array()),
        }
    }

    /// The low half of a [`number`](Self::number).
    pub fn small(&mut self) -> u32 {
        u32::try_from(self.number() & u64::from(u32::MAX)).unwrap_or_default()
    }

    /// The next bytes, zeros where there are none.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut array = [0; N];
        array[..taken.len()].copy_from_slice(taken);
        array
    }
}
