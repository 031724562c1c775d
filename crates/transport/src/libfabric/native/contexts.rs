//! Room for the library beside each operation in flight, at addresses that do not change, and what
//! the operation keeps alive.

use std::cell::UnsafeCell;
use std::ptr::null_mut;

use libc::c_void;
use libfabric_sys::abi::fi_context2;

use crate::libfabric::slots::Token;

const SIZE: usize = size_of::<UnsafeCell<fi_context2>>();

pub(super) struct Contexts<K> {
    /// Written by the library while the operation is in flight.
    rooms: Box<[UnsafeCell<fi_context2>]>,
    uses: Vec<Option<Use<K>>>,
}

struct Use<K> {
    token: Token,
    /// Kept for as long as the operation may touch it.
    _kept: K,
}

impl<K> Contexts<K> {
    pub(super) fn new(count: usize) -> Self {
        let room = || UnsafeCell::new(fi_context2 { internal: [null_mut(); 8] });
        let rooms = std::iter::repeat_with(room).take(count).collect();
        Self { rooms, uses: std::iter::repeat_with(|| None).take(count).collect() }
    }

    /// The room of an operation that is about to begin; `None` if there is one in flight.
    pub(super) fn enter(&mut self, token: Token, kept: K) -> Option<*mut c_void> {
        let slot = token.slot as usize;
        let place = self.uses.get_mut(slot).filter(|place| place.is_none())?;
        *place = Some(Use { token, _kept: kept });
        Some(self.rooms.get(slot)?.get().cast())
    }

    /// The operation whose room this is, which is over; `None` for any other address.
    pub(super) fn leave(&mut self, room: *mut c_void) -> Option<Token> {
        let distance = room.addr().checked_sub(self.rooms.as_ptr().addr())?;
        let slot = distance.is_multiple_of(SIZE).then_some(distance / SIZE)?;
        Some(self.uses.get_mut(slot)?.take()?.token)
    }

    /// Frees all rooms: the endpoint was closed, so nothing is in flight.
    pub(super) fn clear(&mut self) {
        self.uses.iter_mut().for_each(|place| *place = None);
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_room_is_one_operations_until_it_is_over() {
        let mut contexts = Contexts::new(2);
        let token = |slot, generation| Token { slot, generation };
        let kept = Rc::new(());
        let first = contexts.enter(token(0, 1), Rc::clone(&kept)).unwrap();
        let second = contexts.enter(token(1, 1), Rc::clone(&kept)).unwrap();
        assert_eq!(second.addr() - first.addr(), SIZE);
        assert_eq!(contexts.enter(token(1, 2), Rc::clone(&kept)), None);
        assert_eq!(contexts.enter(token(2, 1), Rc::clone(&kept)), None);
        assert_eq!(Rc::strong_count(&kept), 3);
        // No room of this side's.
        for other in [null_mut(), first.wrapping_byte_add(1), first.wrapping_byte_add(2 * SIZE)] {
            assert_eq!(contexts.leave(other), None);
        }
        assert_eq!((contexts.leave(second), contexts.leave(second)), (Some(token(1, 1)), None));
        assert_eq!(contexts.enter(token(1, 2), Rc::clone(&kept)), Some(second));
        contexts.clear();
        assert_eq!((contexts.leave(first), Rc::strong_count(&kept)), (None, 1));
    }
}
