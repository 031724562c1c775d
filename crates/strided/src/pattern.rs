use crate::Error;

/// Most dimensions a pattern can have: enough for K/V, heads and tokens with one to spare.
pub const MAX_DIMS: usize = 4;

/// One dimension of a [`Pattern`]: `count` steps of `stride` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim {
    /// How many steps; at least 1.
    pub count: u32,
    /// Bytes from one step to the next.
    pub stride: u64,
}

/// A strided walk inside one block: from `offset`, all combinations of the dimensions, the
/// last one fastest, each giving one element of `len` contiguous bytes.
///
/// Always in canonical form: dimensions of one step are dropped, a dimension that continues
/// where the next one ends is fused with it, and elements never overlap. Two patterns that
/// visit the same bytes in the same order are therefore equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    offset: u64,
    len: u64,
    rank: u8,
    dims: [Dim; MAX_DIMS],
    end: u64,
}

const UNUSED: Dim = Dim { count: 1, stride: 0 };

impl Pattern {
    /// A pattern of `dims` (outermost first) around elements of `len` bytes.
    ///
    /// # Errors
    /// [`Error::Empty`], [`Error::TooManyDims`], [`Error::Overlap`] or [`Error::TooLarge`].
    pub fn new(offset: u64, dims: &[Dim], len: u64) -> Result<Self, Error> {
        if len == 0 || dims.iter().any(|dim| dim.count == 0) {
            return Err(Error::Empty);
        }
        let mut pattern = Self { offset, len, rank: 0, dims: [UNUSED; MAX_DIMS], end: 0 };
        for &dim in dims.iter().rev() {
            pattern.wrap(dim)?;
        }
        pattern.dims[..usize::from(pattern.rank)].reverse();
        pattern.measure()?;
        Ok(pattern)
    }

    /// `len` bytes in one piece.
    ///
    /// # Errors
    /// [`Error::Empty`] or [`Error::TooLarge`].
    pub fn contiguous(offset: u64, len: u64) -> Result<Self, Error> {
        Self::new(offset, &[], len)
    }

    /// The same walk from another first byte on.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    #[inline]
    pub fn at(self, offset: u64) -> Result<Self, Error> {
        let end = offset.checked_add(self.end - self.offset).ok_or(Error::TooLarge)?;
        Ok(Self { offset, end, ..self })
    }

    /// Adds `dim` around what is there; `self.dims` is innermost first until `new` reverses it.
    fn wrap(&mut self, dim: Dim) -> Result<(), Error> {
        if dim.count == 1 {
            return Ok(());
        }
        let rank = usize::from(self.rank);
        let inner = self.dims[..rank].last_mut();
        let span = match &inner {
            None => self.len,
            Some(inner) => product(inner.count, inner.stride)?,
        };
        if dim.stride == span {
            match inner {
                None => self.len = product(dim.count, self.len)?,
                Some(inner) => {
                    inner.count = inner.count.checked_mul(dim.count).ok_or(Error::TooLarge)?;
                }
            }
            return Ok(());
        }
        if rank == MAX_DIMS {
            return Err(Error::TooManyDims { dims: rank + 1 });
        }
        self.dims[rank] = dim;
        self.rank += 1;
        Ok(())
    }

    /// Fills `end`, and proves that the bytes can be counted and that no two elements share one:
    /// taken by rising stride, each dimension must step over all that the smaller ones span.
    fn measure(&mut self) -> Result<(), Error> {
        let mut by_stride = self.dims;
        let used = &mut by_stride[..usize::from(self.rank)];
        used.sort_unstable_by_key(|dim| dim.stride);
        let (mut extent, mut bytes) = (self.len, self.len);
        for dim in used {
            if dim.stride < extent {
                return Err(Error::Overlap { stride: dim.stride, extent });
            }
            let reach = product(dim.count - 1, dim.stride)?;
            extent = extent.checked_add(reach).ok_or(Error::TooLarge)?;
            bytes = product(dim.count, bytes)?;
        }
        self.end = self.offset.checked_add(extent).ok_or(Error::TooLarge)?;
        Ok(())
    }

    /// First byte, from the start of the block.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The dimensions, outermost first.
    #[must_use]
    pub fn dims(&self) -> &[Dim] {
        &self.dims[..usize::from(self.rank)]
    }

    /// Bytes of one element.
    #[must_use]
    pub fn element_len(&self) -> u64 {
        self.len
    }

    /// How many elements one block has.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.dims().iter().map(|dim| u64::from(dim.count)).product()
    }

    /// Bytes that the pattern visits in one block.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.elements() * self.len
    }

    /// First byte after the pattern, from the start of the block.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Offset of element `index` from the start of the block; `index` is below
    /// [`elements`](Self::elements).
    pub(crate) fn element(&self, mut index: u64) -> u64 {
        let mut offset = self.offset;
        for dim in self.dims().iter().rev() {
            let count = u64::from(dim.count);
            offset += (index % count) * dim.stride;
            index /= count;
        }
        offset
    }
}

fn product(count: u32, stride: u64) -> Result<u64, Error> {
    u64::from(count).checked_mul(stride).ok_or(Error::TooLarge)
}
