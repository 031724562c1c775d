//! Who is at a source's door: every socket that was accepted, until its connection is down.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use crate::greet::GreetError;
use crate::sync::lock;

/// What a guest comes with, and is reached by.
pub(crate) trait Caller: Send + Sync {
    /// Ends its connection: a thread that waits on it wakes up.
    fn hang_up(&self);
}

/// How many may be there.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// That are served.
    pub(crate) readers: usize,
    /// That have not said who they are.
    pub(crate) strangers: usize,
}

/// How far a guest has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// May be anybody, and has to go if too many others come.
    Stranger,
    /// Has shown what is asked of it, and waits for the rest of its connection.
    Member,
    /// A connection that is whole.
    Reader,
    /// Was turned away: it is hung up on, and its thread is about to see that.
    Leaving,
}

/// All guests of one source, in the order in which they came.
pub(crate) struct Guests<C> {
    room: Room,
    state: Mutex<State<C>>,
    /// Somebody has left, must leave, or has become more.
    moved: Condvar,
}

struct State<C> {
    closed: bool,
    guests: BTreeMap<u64, Guest<C>>,
    next: u64,
}

struct Guest<C> {
    caller: Arc<C>,
    standing: Standing,
}

const TURNED_AWAY: GreetError = GreetError::Unexpected("too many came after it");

impl<C: Caller> Guests<C> {
    pub(crate) fn new(room: Room) -> Self {
        let state = State { closed: false, guests: BTreeMap::new(), next: 0 };
        Self { room, state: Mutex::new(state), moved: Condvar::new() }
    }

    /// Accepts until [`close`](Self::close), lets each guest be received by a thread of its own,
    /// and returns when all of these have ended.
    pub(crate) fn run(
        &self,
        mut accept: impl FnMut() -> io::Result<C>,
        receive: impl Fn(u64, &Arc<C>) -> Result<(), GreetError> + Sync,
    ) {
        thread::scope(|scope| {
            loop {
                let accepted = accept();
                if lock(&self.state).closed {
                    return;
                }
                match accepted {
                    Ok(caller) => self.admit(scope, caller, &receive),
                    // No descriptor is left, perhaps; a pause keeps the core cool meanwhile.
                    Err(why) => {
                        tracing::warn!(%why, "cannot accept");
                        thread::sleep(Duration::from_millis(100));
                    }
                }
            }
        });
    }

    /// Ends every connection, and lets no more in.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.guests.values().for_each(|guest| guest.caller.hang_up());
        self.moved.notify_all();
    }

    fn admit<'a>(
        &'a self,
        scope: &'a Scope<'a, '_>,
        caller: C,
        receive: &'a (impl Fn(u64, &Arc<C>) -> Result<(), GreetError> + Sync),
    ) where
        C: 'a,
    {
        let caller = Arc::new(caller);
        let Some(number) = self.enter(&caller) else { return caller.hang_up() };
        let received = move || {
            if let Err(why) = receive(number, &caller) {
                tracing::debug!(%why, "turned a connection away");
            }
            self.leave(number);
        };
        let builder = thread::Builder::new().name("kv-serve".to_owned());
        if builder.spawn_scoped(scope, received).is_err() {
            self.leave(number);
        }
    }

    /// Gives a guest a place, at the cost of the oldest stranger if need be: whoever speaks at
    /// once is in before that many others have come.
    fn enter(&self, caller: &Arc<C>) -> Option<u64> {
        let mut state = self.not_crowded();
        let Room { readers, strangers } = self.room;
        let full = state.count(Standing::Reader) >= readers
            || state.guests.len() >= readers + 2 * strangers;
        if state.closed || full {
            tracing::debug!(guests = state.guests.len(), "no room for a connection");
            return None;
        }
        if state.count(Standing::Stranger) >= strangers {
            state.turn_away_oldest();
            self.moved.notify_all();
        }
        state.next += 1;
        let number = state.next;
        let guest = Guest { caller: Arc::clone(caller), standing: Standing::Stranger };
        state.guests.insert(number, guest);
        Some(number)
    }

    /// Waits while more are leaving than may be here: each still has a thread.
    fn not_crowded(&self) -> MutexGuard<'_, State<C>> {
        let crowded = |state: &mut State<C>| {
            !state.closed && state.count(Standing::Leaving) >= self.room.strangers
        };
        let state = self.moved.wait_while(lock(&self.state), crowded);
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, number: u64) {
        if let Some(guest) = lock(&self.state).guests.remove(&number) {
            guest.caller.hang_up();
        }
        self.moved.notify_all();
    }

    /// Gives a guest a better standing.
    ///
    /// # Errors
    /// It was turned away meanwhile, or there is no place of that kind.
    pub(crate) fn promote(&self, number: u64, standing: Standing) -> Result<(), GreetError> {
        let mut state = lock(&self.state);
        let full = state.count(Standing::Reader) >= self.room.readers;
        if state.closed || (standing == Standing::Reader && full) {
            return Err(GreetError::Unexpected("too many are there"));
        }
        state.staying(number).ok_or(TURNED_AWAY)?.standing = standing;
        Ok(())
    }

    /// A guest that was not turned away.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<C>> {
        lock(&self.state).staying(number).map(|guest| Arc::clone(&guest.caller))
    }

    /// Waits until the caller of a guest is `complete`, or the guest has to go.
    ///
    /// # Errors
    /// It did not become so in time.
    pub(crate) fn wait(
        &self,
        number: u64,
        deadline: Instant,
        complete: impl Fn(&C) -> bool,
    ) -> Result<(), GreetError> {
        let incomplete = |state: &mut State<C>| {
            let closed = state.closed;
            let guest = state.staying(number);
            !closed && guest.is_some_and(|guest| !complete(&guest.caller))
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.moved.wait_timeout_while(lock(&self.state), left, incomplete);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        if waited.timed_out() {
            return Err(GreetError::Unexpected("not all of a connection came"));
        }
        Ok(())
    }

    /// Makes a guest part of another one: from then on that one's caller ends its connection.
    ///
    /// # Errors
    /// It was turned away meanwhile, or `join` does not take it.
    pub(crate) fn merge(&self, number: u64, join: impl FnOnce() -> bool) -> Result<(), GreetError> {
        let mut state = lock(&self.state);
        state.staying(number).ok_or(TURNED_AWAY)?;
        if !join() {
            return Err(GreetError::Unexpected("a stream too many or too late"));
        }
        state.guests.remove(&number);
        self.moved.notify_all();
        Ok(())
    }
}

impl<C: Caller> State<C> {
    fn count(&self, standing: Standing) -> usize {
        self.guests.values().filter(|guest| guest.standing == standing).count()
    }

    fn turn_away_oldest(&mut self) {
        let mut guests = self.guests.values_mut();
        if let Some(oldest) = guests.find(|guest| guest.standing == Standing::Stranger) {
            oldest.standing = Standing::Leaving;
            oldest.caller.hang_up();
        }
    }

    fn staying(&mut self, number: u64) -> Option<&mut Guest<C>> {
        self.guests.get_mut(&number).filter(|guest| guest.standing != Standing::Leaving)
    }
}
