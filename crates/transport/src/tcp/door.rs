use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use super::greet::{self, GreetError};
use super::link::{Link, hung_up};
use super::queue::SendQueue;
use super::serve::Served;
use super::stream::Stream;
use super::{MAX_STREAMS, TcpConfig};
use crate::AgentId;
use crate::grants::Grants;
use crate::session::{Channel, Greeting, Hello, Known, Role, VERSIONS};
use crate::sync::lock;

/// Lets readers in: knows every socket that was accepted, until its connection is down.
pub(super) struct Door {
    config: TcpConfig,
    grants: Arc<Grants>,
    state: Mutex<State>,
    /// A stream has joined its connection, or a guest has left or must leave.
    moved: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    /// In the order in which they came.
    guests: BTreeMap<u64, Guest>,
    next_guest: u64,
    /// Connections that wait for the rest of their streams, each with its guest's number.
    parties: HashMap<Party, u64>,
}

/// One connection, or a socket that is not yet part of one.
struct Guest {
    link: Arc<Link>,
    standing: Standing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// May be anybody, and has to go if too many others come.
    Stranger,
    /// Has shown what is asked of it, and waits for its other streams.
    Member,
    /// A connection that is whole.
    Reader,
    /// Was turned away: its socket is shut, and its thread is about to see that.
    Leaving,
}

/// What the streams of one connection have in common.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Party {
    agent: AgentId,
    random: [u8; 16],
    streams: u16,
}

impl Door {
    pub(super) fn new(config: TcpConfig, grants: Arc<Grants>) -> Self {
        Self { config, grants, state: Mutex::default(), moved: Condvar::new() }
    }

    /// Accepts until [`close`](Self::close), and returns when every thread has ended.
    pub(super) fn run(&self, listener: &TcpListener) {
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
        for guest in state.guests.values() {
            guest.link.close(hung_up());
        }
        self.moved.notify_all();
    }

    /// Takes in a socket, unless there are too many already, and lets it introduce itself.
    fn admit<'a>(&'a self, scope: &'a Scope<'a, '_>, socket: TcpStream) {
        let socket = Arc::new(Stream::new(socket));
        let Some(number) = self.enter(&socket) else { return };
        let receive = move || {
            if let Err(why) = self.receive(number, &socket) {
                tracing::debug!(%why, "turned a connection away");
            }
        };
        let builder = thread::Builder::new().name("kv-serve".to_owned());
        if builder.spawn_scoped(scope, receive).is_err() {
            self.leave(number);
        }
    }

    /// Gives a socket a place, at the cost of the oldest stranger if need be: whoever speaks at
    /// once is in before that many others have come.
    fn enter(&self, socket: &Arc<Stream>) -> Option<u64> {
        let mut state = self.not_crowded();
        let full = state.count(Standing::Reader) >= self.config.max_readers
            || state.guests.len() >= self.config.max_readers + 2 * self.config.max_strangers;
        if state.closed || full {
            tracing::debug!(guests = state.guests.len(), "no room for a connection");
            return None;
        }
        if state.count(Standing::Stranger) >= self.config.max_strangers {
            state.turn_away_oldest();
            self.moved.notify_all();
        }
        let link = Arc::new(Link::default());
        link.add(Arc::clone(socket)).ok()?;
        state.next_guest += 1;
        let number = state.next_guest;
        state.guests.insert(number, Guest { link, standing: Standing::Stranger });
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
        let mut state = lock(&self.state);
        state.parties.retain(|_, &mut guest| guest != number);
        if let Some(guest) = state.guests.remove(&number) {
            guest.link.close(hung_up());
        }
        self.moved.notify_all();
    }

    /// Gets to know who is at a socket. The first stream of a connection then waits for the
    /// others and serves; the others only join it.
    fn receive(&self, number: u64, socket: &Arc<Stream>) -> Result<(), GreetError> {
        let deadline = Instant::now() + self.config.hello_timeout;
        let outcome = self.introduce(number, socket, deadline).and_then(|known| {
            let Hello { agent, random, streams, stream, .. } = known.hello;
            let party = Party { agent, random, streams };
            match stream {
                0 => self.host(number, socket, &known, party, deadline),
                _ => self.join(number, socket, &known, &party),
            }
        });
        self.leave(number);
        outcome
    }

    fn introduce(
        &self,
        number: u64,
        stream: &Stream,
        deadline: Instant,
    ) -> Result<Known, GreetError> {
        stream.socket().set_nodelay(true)?;
        let trust = &self.config.trust;
        let greeting = Greeting::listener(self.hello()?, trust.secret.clone());
        let tls = trust.tls.as_ref().map(|tls| tls.from());
        let known = greet::greet(stream, tls, greeting, deadline)?;
        if known.hello.streams > MAX_STREAMS {
            return Err(GreetError::Unexpected("too many streams"));
        }
        if trust.asks() {
            lock(&self.state).promote(number, Standing::Member)?;
        }
        Ok(known)
    }

    fn hello(&self) -> io::Result<Hello> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        Ok(Hello {
            versions: VERSIONS,
            role: Role::Prefill,
            channel: Channel::Data,
            stream: 0,
            streams: 1,
            engine: self.config.engine,
            agent: self.config.agent,
            random,
            proves: false,
        })
    }

    fn host(
        &self,
        number: u64,
        mut socket: &Stream,
        known: &Known,
        party: Party,
        deadline: Instant,
    ) -> Result<(), GreetError> {
        // The first one keeps its place, whoever says the same afterwards.
        match lock(&self.state).parties.entry(party.clone()) {
            Entry::Vacant(vacant) => vacant.insert(number),
            Entry::Occupied(_) => return Err(GreetError::Unexpected("a second first stream")),
        };
        socket.write_all(&known.last_word)?;
        let link = self.gather(number, &party, deadline)?;
        let grants = Arc::clone(&self.grants);
        let queue = SendQueue::default();
        Served { reader: party.agent, link, grants, queue }.run(&self.config);
        Ok(())
    }

    /// Waits for the other streams of a connection.
    fn gather(
        &self,
        number: u64,
        party: &Party,
        deadline: Instant,
    ) -> Result<Arc<Link>, GreetError> {
        let state = lock(&self.state);
        let incomplete = |state: &mut State| {
            let guest = state.staying(number);
            !state.closed && guest.is_some_and(|guest| guest.link.len() < party.streams)
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.moved.wait_timeout_while(state, left, incomplete);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        state.parties.remove(party);
        if waited.timed_out() {
            return Err(GreetError::Unexpected("not all streams came"));
        }
        state.promote(number, Standing::Reader)
    }

    fn join(
        &self,
        number: u64,
        socket: &Arc<Stream>,
        known: &Known,
        party: &Party,
    ) -> Result<(), GreetError> {
        let link = self.link_of(party).ok_or(GreetError::Unexpected("a stream of nobody"))?;
        // Once it is added, senders may use the socket: the last word goes out before.
        (&**socket).write_all(&known.last_word)?;
        let mut state = lock(&self.state);
        state.staying(number).ok_or(TURNED_AWAY)?;
        if link.len() >= party.streams || link.add(Arc::clone(socket)).is_err() {
            return Err(GreetError::Unexpected("a stream too many or too late"));
        }
        // From now on the host's link is the one that ends this socket.
        state.guests.remove(&number);
        self.moved.notify_all();
        Ok(())
    }

    fn link_of(&self, party: &Party) -> Option<Arc<Link>> {
        let state = lock(&self.state);
        let host = state.parties.get(party)?;
        state.guests.get(host).map(|guest| Arc::clone(&guest.link))
    }
}

const TURNED_AWAY: GreetError = GreetError::Unexpected("too many came after it");

impl State {
    fn count(&self, standing: Standing) -> usize {
        self.guests.values().filter(|guest| guest.standing == standing).count()
    }

    fn turn_away_oldest(&mut self) {
        let mut guests = self.guests.values_mut();
        if let Some(oldest) = guests.find(|guest| guest.standing == Standing::Stranger) {
            oldest.standing = Standing::Leaving;
            oldest.link.close(hung_up());
        }
    }

    /// A guest that was not turned away.
    fn staying(&self, number: u64) -> Option<&Guest> {
        self.guests.get(&number).filter(|guest| guest.standing != Standing::Leaving)
    }

    /// Gives a guest a better standing, unless it was turned away meanwhile.
    fn promote(&mut self, number: u64, standing: Standing) -> Result<Arc<Link>, GreetError> {
        self.staying(number).ok_or(TURNED_AWAY)?;
        let guest = self.guests.get_mut(&number).ok_or(TURNED_AWAY)?;
        guest.standing = standing;
        Ok(Arc::clone(&guest.link))
    }
}
