//! Room for the library beside each operation in flight, at addresses that do not change, and what
//! the operation keeps alive.

use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::rc::Rc;

use libc::c_void;
use libfabric_sys::abi::fi_context2;

use super::region::Region;
use crate::libfabric::slots::Token;

const SIZE: usize = size_of::<UnsafeCell<fi_context2>>();

pub(super) struct Contexts {
    /// Written by the library while the operation is in flight.
    rooms: Box<[UnsafeCell<fi_context2>]>,
    uses: Vec<Option<Use>>,
}

struct Use {
    token: Token,
    /// Registered for as long as the operation may touch it.
    _region: Rc<Region>,
}

impl Contexts {
    pub(super) fn new(count: usize) -> Self {
        let room = || UnsafeCell::new(fi_context2 { internal: [null_mut(); 8] });
        let rooms = std::iter::repeat_with(room).take(count).collect();
        Self { rooms, uses: std::iter::repeat_with(|| None).take(count).collect() }
    }

    /// The room of an operation that is about to begin; `None` if there is one in flight.
    pub(super) fn enter(&mut self, token: Token, region: Rc<Region>) -> Option<*mut c_void> {
        let slot = token.slot as usize;
        let place = self.uses.get_mut(slot).filter(|place| place.is_none())?;
        *place = Some(Use { token, _region: region });
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
