use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::greet::{self, GreetError};
use super::link::{Link, hung_up};
use super::queue::SendQueue;
use super::serve::Served;
use super::stream::Stream;
use super::{MAX_STREAMS, TcpConfig};
use crate::AgentId;
use crate::ends;
use crate::grants::Grants;
use crate::guests::{Caller, Guests, Room, Standing};
use crate::session::{Channel, Greeting, Hello, Known, Role, VERSIONS};
use crate::sync::lock;

/// Lets readers in, and puts the streams of each together.
pub(super) struct Door {
    config: TcpConfig,
    grants: Arc<Grants>,
    guests: Guests<Link>,
    /// Connections that wait for the rest of their streams, each with its guest's number.
    parties: Mutex<HashMap<Party, u64>>,
}

/// What the streams of one connection have in common.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Party {
    agent: AgentId,
    random: [u8; 16],
    streams: u16,
}

impl Caller for Link {
    fn hang_up(&self) {
        self.close(hung_up());
    }
}

impl ends::Door<TcpListener> for Door {
    fn run(&self, listener: &TcpListener) {
        let accept = || {
            let (socket, _) = listener.accept()?;
            Ok(Link::of(Arc::new(Stream::new(socket))))
        };
        self.guests.run(accept, |number, link| self.receive(number, link));
    }

    fn close(&self) {
        self.guests.close();
    }
}

impl Door {
    pub(super) fn new(config: TcpConfig, grants: Arc<Grants>) -> Self {
        let room = Room { readers: config.max_readers, strangers: config.max_strangers };
        Self { config, grants, guests: Guests::new(room), parties: Mutex::default() }
    }

    /// Gets to know who is at a socket. The first stream of a connection then waits for the
    /// others and serves; the others only join it.
    fn receive(&self, number: u64, link: &Arc<Link>) -> Result<(), GreetError> {
        let deadline = Instant::now() + self.config.hello_timeout;
        // None where it was turned away by now.
        let Some(socket) = link.streams().into_iter().next() else { return Ok(()) };
        let known = self.introduce(number, &socket, deadline)?;
        let Hello { agent, random, streams, stream, .. } = known.hello;
        let party = Party { agent, random, streams };
        match stream {
            0 => {
                let hosted = self.host(number, link, &known, &party, deadline);
                lock(&self.parties).retain(|_, &mut host| host != number);
                hosted
            }
            _ => self.join(number, &socket, &known, &party),
        }
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
            self.guests.promote(number, Standing::Member)?;
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
        link: &Arc<Link>,
        known: &Known,
        party: &Party,
        deadline: Instant,
    ) -> Result<(), GreetError> {
        // The first one keeps its place, whoever says the same afterwards.
        match lock(&self.parties).entry(party.clone()) {
            Entry::Vacant(vacant) => vacant.insert(number),
            Entry::Occupied(_) => return Err(GreetError::Unexpected("a second first stream")),
        };
        let streams = link.streams();
        let mut first: &Stream =
            streams.first().ok_or(GreetError::Unexpected("nobody any more"))?;
        first.write_all(&known.last_word)?;
        self.guests.wait(number, deadline, |link| link.len() >= party.streams)?;
        lock(&self.parties).remove(party);
        self.guests.promote(number, Standing::Reader)?;
        let (link, grants) = (Arc::clone(link), Arc::clone(&self.grants));
        let (queue, turn) = (SendQueue::default(), Mutex::default());
        Served { reader: party.agent, link, grants, queue, turn }.run(&self.config);
        Ok(())
    }

    fn join(
        &self,
        number: u64,
        socket: &Arc<Stream>,
        known: &Known,
        party: &Party,
    ) -> Result<(), GreetError> {
        let host = lock(&self.parties).get(party).copied();
        let link = host.and_then(|host| self.guests.find(host));
        let link = link.ok_or(GreetError::Unexpected("a stream of nobody"))?;
        // Once it is added, senders may use the socket: the last word goes out before.
        (&**socket).write_all(&known.last_word)?;
        self.guests
            .merge(number, || link.len() < party.streams && link.add(Arc::clone(socket)).is_ok())
    }
}
