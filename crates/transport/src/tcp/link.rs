use std::net::Shutdown;
use std::sync::{Arc, Mutex};

use super::stream::Stream;
use crate::TransferError;
pub(super) use crate::error::{broken, hung_up, lost};
use crate::sync::lock;

/// The sockets of one connection, which live and die together.
#[derive(Default)]
pub(super) struct Link {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    streams: Vec<Arc<Stream>>,
    down: Option<TransferError>,
}

impl Link {
    /// One of this stream, so far.
    pub(super) fn of(stream: Arc<Stream>) -> Self {
        let state = State { streams: vec![stream], down: None };
        Self { state: Mutex::new(state) }
    }

    /// Adds a stream, so that [`close`](Self::close) reaches it from any thread.
    ///
    /// # Errors
    /// Why the connection is down already.
    pub(super) fn add(&self, stream: Arc<Stream>) -> Result<(), TransferError> {
        let mut state = lock(&self.state);
        match &state.down {
            Some(why) => Err(why.clone()),
            None => {
                state.streams.push(stream);
                Ok(())
            }
        }
    }

    /// The streams: number 0 first, the others in the order in which they came.
    pub(super) fn streams(&self) -> Vec<Arc<Stream>> {
        lock(&self.state).streams.clone()
    }

    /// How many streams there are.
    pub(super) fn len(&self) -> u16 {
        u16::try_from(lock(&self.state).streams.len()).unwrap_or(u16::MAX)
    }

    /// Ends the connection: every thread that waits on a socket of it wakes up. The first
    /// reason stays.
    pub(super) fn close(&self, why: TransferError) {
        let mut state = lock(&self.state);
        state.down.get_or_insert(why);
        for stream in state.streams.drain(..) {
            // It fails only if the other side has shut it already.
            let _ = stream.socket().shutdown(Shutdown::Both);
        }
    }

    /// Why the connection is down, if it is.
    pub(super) fn down(&self) -> Option<TransferError> {
        lock(&self.state).down.clone()
    }
}
