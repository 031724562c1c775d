/// Pieces that the kernel takes in one call.
pub(crate) const MAX_PIECES: usize = 1024;

/// The pieces of memory of one call, as the kernel takes them; kept by a thread so as not to be
/// allocated each time.
pub(crate) struct Pieces {
    list: Vec<libc::iovec>,
    /// How many at the front are dealt with.
    done: usize,
}

impl Pieces {
    pub(crate) fn new() -> Self {
        Self { list: Vec::new(), done: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.done = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.done == self.list.len()
    }

    /// How many there are, those that are dealt with among them.
    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn push(&mut self, ptr: *mut u8, len: usize) {
        if len > 0 {
            self.list.push(libc::iovec { iov_base: ptr.cast(), iov_len: len });
        }
    }

    /// Strikes off `bytes` from the front.
    pub(crate) fn advance(&mut self, mut bytes: usize) {
        while let Some(piece) = self.list.get_mut(self.done)
            && bytes > 0
        {
            if bytes < piece.iov_len {
                piece.iov_base = piece.iov_base.wrapping_byte_add(bytes);
                piece.iov_len -= bytes;
                return;
            }
            bytes -= piece.iov_len;
            self.done += 1;
        }
    }

    /// What is not dealt with.
    pub(crate) fn rest(&mut self) -> &mut [libc::iovec] {
        self.list.get_mut(self.done..).unwrap_or_default()
    }
}
