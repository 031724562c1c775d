use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use super::catalog::Catalog;
use super::greet::{Fresh, hello};
use super::open::no_look;
use super::outbox::Outbox;
use super::serve::Served;
use super::sys::credentials;
use super::{ShmConfig, tracer};
use crate::grants::Grants;
use crate::greet::{GreetError, greet};
use crate::session::{Greeting, Known, Role};
use crate::sync::lock;

/// Lets readers in: knows every socket that was accepted, until its connection is down.
pub(super) struct Door {
    config: ShmConfig,
    grants: Arc<Grants>,
    catalog: Arc<Catalog>,
    state: Mutex<State>,
    /// A guest has left.
    moved: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    /// In the order in which they came.
    guests: BTreeMap<u64, Guest>,
    next_guest: u64,
}

struct Guest {
    socket: Arc<UnixStream>,
    standing: Standing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// May be anybody, and has to go if too many others come.
    Stranger,
    Reader,
    /// Was turned away: its socket is shut, and its thread is about to see that.
    Leaving,
}

const TURNED_AWAY: GreetError = GreetError::Unexpected("too many came after it");

impl Door {
    pub(super) fn new(config: ShmConfig, grants: Arc<Grants>, catalog: Arc<Catalog>) -> Self {
        Self { config, grants, catalog, state: Mutex::default(), moved: Condvar::new() }
    }

    /// Accepts until [`close`](Self::close), and returns when every thread has ended.
    pub(super) fn run(&self, listener: &UnixListener) {
        thread::scope(|scope| {
            loop {
                let accepted = listener.accept();
                if lock(&self.state).closed {
                    return;
                }
                match accepted {
                    Ok((socket, _)) => self.admit(scope, socket),
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
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.guests.values().for_each(Guest::shut);
        self.moved.notify_all();
    }

    /// Takes in a socket, unless there are too many already, and lets it introduce itself.
    fn admit<'a>(&'a self, scope: &'a Scope<'a, '_>, socket: UnixStream) {
        let socket = Arc::new(socket);
        let Some(number) = self.enter(&socket) else { return };
        let receive = move || {
            if let Err(why) = self.receive(number, &socket) {
                tracing::debug!(%why, "turned a connection away");
            }
            self.leave(number);
        };
        let builder = thread::Builder::new().name("kv-serve".to_owned());
        if builder.spawn_scoped(scope, receive).is_err() {
            self.leave(number);
        }
    }

    /// Gives a socket a place, at the cost of the oldest stranger if need be: whoever speaks at
    /// once is in before that many others have come.
    fn enter(&self, socket: &Arc<UnixStream>) -> Option<u64> {
        let mut state = self.not_crowded();
        if state.closed || state.count(Standing::Reader) >= self.config.max_readers {
            tracing::debug!(guests = state.guests.len(), "no room for a connection");
            return None;
        }
        if state.count(Standing::Stranger) >= self.config.max_strangers {
            state.turn_away_oldest();
        }
        state.next_guest += 1;
        let number = state.next_guest;
        let guest = Guest { socket: Arc::clone(socket), standing: Standing::Stranger };
        state.guests.insert(number, guest);
        Some(number)
    }

    /// Waits while more are leaving than may be here: each still has a thread.
    fn not_crowded(&self) -> MutexGuard<'_, State> {
        let crowded = |state: &mut State| {
            !state.closed && state.count(Standing::Leaving) >= self.config.max_strangers
        };
        let state = self.moved.wait_while(lock(&self.state), crowded);
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, number: u64) {
        if let Some(guest) = lock(&self.state).guests.remove(&number) {
            guest.shut();
        }
        self.moved.notify_all();
    }

    /// Gets to know who is at a socket, and serves.
    fn receive(&self, number: u64, socket: &Arc<UnixStream>) -> Result<(), GreetError> {
        let peer = credentials(socket)?;
        if peer.user != rustix::process::geteuid().as_raw() {
            return Err(GreetError::Unexpected("another user's process"));
        }
        let known = self.introduce(socket)?;
        lock(&self.state).promote(number, self.config.max_readers)?;
        tracer::allow(peer.pid);
        let outbox = Arc::new(Outbox::new()?);
        outbox.adopt(Arc::clone(socket));
        outbox.push(known.last_word, None);
        outbox.open();
        self.catalog.enter(number, Arc::clone(&outbox));
        let served = Served {
            reader: known.hello.agent,
            cut_after: self.config.cut_after,
            grants: &self.grants,
            catalog: &self.catalog,
            socket,
            outbox: &outbox,
        };
        let why = served.run();
        self.catalog.leave(number);
        outbox.close();
        tracing::debug!(reader = known.hello.agent.0, %why, "reader is gone");
        Ok(())
    }

    fn introduce(&self, socket: &UnixStream) -> Result<Known, GreetError> {
        let deadline = Instant::now() + self.config.hello_timeout;
        let own = hello(&self.config, Role::Prefill)?;
        let greeting = Greeting::listener(own, self.config.secret.clone());
        let known = greet(&Fresh { socket, bell: None, look: &no_look }, greeting, deadline)?;
        if known.hello.streams != 1 {
            return Err(GreetError::Unexpected("more than one stream"));
        }
        Ok(known)
    }
}

impl Guest {
    fn shut(&self) {
        // It fails only if the other side has shut it already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl State {
    fn count(&self, standing: Standing) -> usize {
        self.guests.values().filter(|guest| guest.standing == standing).count()
    }

    fn turn_away_oldest(&mut self) {
        let mut guests = self.guests.values_mut();
        if let Some(oldest) = guests.find(|guest| guest.standing == Standing::Stranger) {
            oldest.standing = Standing::Leaving;
            oldest.shut();
        }
    }

    /// Makes a stranger a reader, unless it was turned away meanwhile.
    fn promote(&mut self, number: u64, most: usize) -> Result<(), GreetError> {
        if self.closed || self.count(Standing::Reader) >= most {
            return Err(GreetError::Unexpected("too many are there"));
        }
        let guest = self.guests.get_mut(&number).ok_or(TURNED_AWAY)?;
        if guest.standing == Standing::Leaving {
            return Err(TURNED_AWAY);
        }
        guest.standing = Standing::Reader;
        Ok(())
    }
}

/// Listens at a name that is no file.
pub(super) fn listen(name: &str) -> io::Result<UnixListener> {
    use std::os::linux::net::SocketAddrExt;
    let place = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    UnixListener::bind_addr(&place)
}
