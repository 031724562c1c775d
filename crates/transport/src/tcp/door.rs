use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use super::greet::{self, GreetError};
use super::link::{Link, hung_up};
use super::queue::SendQueue;
use super::serve::Served;
use super::{MAX_STREAMS, TcpConfig};
use crate::AgentId;
use crate::grants::Grants;
use crate::session::{Channel, Hello, Role, VERSIONS};
use crate::sync::lock;

/// Lets readers in: knows every socket that was accepted, until its connection is down.
pub(super) struct Door {
    config: TcpConfig,
    grants: Arc<Grants>,
    state: Mutex<State>,
    joined: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    guests: HashMap<u64, Guest>,
    next_guest: u64,
    /// Connections that wait for the rest of their streams, each with its guest's number.
    parties: HashMap<Party, u64>,
}

/// One connection, or a socket that is not yet part of one.
struct Guest {
    link: Arc<Link>,
    /// Has said who it is, with all its streams.
    known: bool,
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
        Self { config, grants, state: Mutex::default(), joined: Condvar::new() }
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
        self.joined.notify_all();
    }

    /// Takes in a socket, unless there are too many already, and lets it introduce itself.
    fn admit<'a>(&'a self, scope: &'a Scope<'a, '_>, socket: TcpStream) {
        let socket = Arc::new(socket);
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

    fn enter(&self, socket: &Arc<TcpStream>) -> Option<u64> {
        let mut state = lock(&self.state);
        let strangers = state.guests.values().filter(|guest| !guest.known).count();
        let known = state.guests.len() - strangers;
        let full = strangers >= self.config.max_strangers || known >= self.config.max_readers;
        if state.closed || full {
            tracing::debug!(strangers, known, closed = state.closed, "no room for a connection");
            return None;
        }
        let link = Arc::new(Link::default());
        link.add(Arc::clone(socket)).ok()?;
        state.next_guest += 1;
        let number = state.next_guest;
        state.guests.insert(number, Guest { link, known: false });
        Some(number)
    }

    fn leave(&self, number: u64) {
        let mut state = lock(&self.state);
        state.parties.retain(|_, &mut guest| guest != number);
        if let Some(guest) = state.guests.remove(&number) {
            guest.link.close(hung_up());
        }
    }

    /// Hears the hello of a socket. The first stream of a connection then waits for the others
    /// and serves; the others only join it.
    fn receive(&self, number: u64, socket: &Arc<TcpStream>) -> Result<(), GreetError> {
        let deadline = Instant::now() + self.config.hello_timeout;
        let outcome = self.introduce(socket, deadline).and_then(|hello| {
            let party = Party { agent: hello.agent, random: hello.random, streams: hello.streams };
            match hello.stream {
                0 => self.host(number, socket, &hello, party, deadline),
                _ => self.join(number, socket, &hello, &party),
            }
        });
        self.leave(number);
        outcome
    }

    fn introduce(&self, socket: &TcpStream, deadline: Instant) -> Result<Hello, GreetError> {
        socket.set_nodelay(true)?;
        let hello = greet::hear(socket, deadline)?;
        if hello.channel != Channel::Data || hello.role != Role::Decode {
            return Err(GreetError::Unexpected("not a reader of data"));
        }
        if hello.streams > MAX_STREAMS {
            return Err(GreetError::Unexpected("too many streams"));
        }
        if let Err(why) = hello.agree(&VERSIONS) {
            // The only refusal that is answered: it tells the reader which versions would do.
            self.answer(socket, &hello)?;
            return Err(why.into());
        }
        Ok(hello)
    }

    fn answer(&self, socket: &TcpStream, hello: &Hello) -> io::Result<()> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let own = Hello {
            versions: VERSIONS,
            role: Role::Prefill,
            engine: self.config.engine,
            agent: self.config.agent,
            random,
            ..hello.clone()
        };
        greet::say(socket, &own)
    }

    fn host(
        &self,
        number: u64,
        socket: &TcpStream,
        hello: &Hello,
        party: Party,
        deadline: Instant,
    ) -> Result<(), GreetError> {
        // The first one keeps its place, whoever says the same afterwards.
        match lock(&self.state).parties.entry(party.clone()) {
            Entry::Vacant(vacant) => vacant.insert(number),
            Entry::Occupied(_) => return Err(GreetError::Unexpected("a second first stream")),
        };
        self.answer(socket, hello)?;
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
            let guest = state.guests.get(&number);
            !state.closed && guest.is_some_and(|guest| guest.link.len() < party.streams)
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.joined.wait_timeout_while(state, left, incomplete);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        state.parties.remove(party);
        match state.guests.get_mut(&number) {
            Some(guest) if !waited.timed_out() => {
                guest.known = true;
                Ok(Arc::clone(&guest.link))
            }
            _ => Err(GreetError::Unexpected("not all streams came")),
        }
    }

    fn join(
        &self,
        number: u64,
        socket: &Arc<TcpStream>,
        hello: &Hello,
        party: &Party,
    ) -> Result<(), GreetError> {
        let link = self.link_of(party).ok_or(GreetError::Unexpected("a stream of nobody"))?;
        // Once it is added, senders may use the socket: the hello goes out before.
        self.answer(socket, hello)?;
        let mut state = lock(&self.state);
        if link.len() >= party.streams || link.add(Arc::clone(socket)).is_err() {
            return Err(GreetError::Unexpected("a stream too many or too late"));
        }
        // From now on the host's link is the one that ends this socket.
        state.guests.remove(&number);
        self.joined.notify_all();
        Ok(())
    }

    fn link_of(&self, party: &Party) -> Option<Arc<Link>> {
        let state = lock(&self.state);
        let host = state.parties.get(party)?;
        state.guests.get(host).map(|guest| Arc::clone(&guest.link))
    }
}
