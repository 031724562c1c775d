//! The control channels: ordered, as TCP is, until they break.

use std::collections::BTreeMap;
use std::rc::Rc;

use connector::codec;
use connector::message::Message;
use connector::params::Address;
use connector::{Acquaintance, AgentEpoch, Failure, Input, Peer, Rank, counterparts};

use super::World;
use super::engine::engine_at;
use super::events::{End, What, Who};
use super::oracle::Oracle;
use super::setup::{Fault, MS, SEC};

/// A peer that does not answer is given up after this.
pub(crate) const HEARTBEAT: u64 = 5 * SEC;

/// The longest time that a handshake takes before it is given up.
const HANDSHAKE: u64 = 5 * SEC;

#[derive(Debug)]
pub(crate) struct Conn {
    d: (Who, Peer),
    p: (Who, Peer),
    /// Nothing passes any more, whether the sides know it or not.
    broken: bool,
    /// When the last frame to each end arrives.
    last: [u64; 2],
}

#[derive(Debug, Default)]
pub(crate) struct Network {
    conns: Vec<Conn>,
    /// Two engines that cannot reach each other, and until when.
    partitions: Vec<(usize, usize, u64)>,
    /// Which life of which worker has which epoch.
    pub(crate) names: BTreeMap<AgentEpoch, Who>,
}

impl Conn {
    pub(crate) fn end(&self, end: End) -> (Who, Peer) {
        match end {
            End::D => self.d,
            End::P => self.p,
        }
    }
}

impl Network {
    fn open(&mut self, d: (Who, Peer), p: (Who, Peer)) -> usize {
        self.conns.push(Conn { d, p, broken: false, last: [0; 2] });
        self.conns.len() - 1
    }

    /// Until when two engines cannot reach each other, or 0.
    fn apart(&self, a: usize, b: usize) -> u64 {
        let between = |&&(c, d, _): &&(usize, usize, u64)| (a, b) == (c, d) || (a, b) == (d, c);
        self.partitions.iter().filter(between).map(|(.., until)| *until).max().unwrap_or(0)
    }

    pub(crate) fn conn(&self, conn: usize) -> &Conn {
        &self.conns[conn]
    }

    /// The connections of which one end fits.
    pub(crate) fn of(&self, fits: impl Fn(Who) -> bool) -> Vec<usize> {
        let all = self.conns.iter().enumerate();
        let of = |(at, conn): (usize, &Conn)| {
            (!conn.broken && (fits(conn.d.0) || fits(conn.p.0))).then_some(at)
        };
        all.filter_map(of).collect()
    }

    pub(crate) fn heal(&mut self) {
        self.partitions.clear();
    }
}

impl World {
    /// Puts a message on the wire; what the machine must be told if there is none.
    pub(crate) fn send(&mut self, from: Who, message: &Message) -> Option<Input> {
        let link = self.agent(from).and_then(|agent| agent.links.get(&message.to).copied());
        let Some(conn) = link else { return Some(Input::PeerLost(message.to)) };
        let to = if self.network.conns[conn].d.0 == from { End::P } else { End::D };
        if self.network.conns[conn].broken {
            return None;
        }
        let Ok(frame) = codec::encode(message) else {
            self.broken(Oracle::Codec, None, || format!("{message:?} cannot be encoded"));
            return None;
        };
        let bytes: Rc<[u8]> = frame.into();
        self.carry(conn, to, &bytes);
        if self.fault(Fault::Mangle, 100) {
            self.carry(conn, to, &bytes);
        }
        None
    }

    fn carry(&mut self, conn: usize, to: End, bytes: &Rc<[u8]>) {
        let mut at = self.now + self.delay();
        let Conn { d, p, last, .. } = &self.network.conns[conn];
        at = at.max(self.network.apart(d.0.engine, p.0.engine));
        let last = last[to as usize];
        if self.fault(Fault::Mangle, 100) {
            at += self.between(0, 300 * MS);
        } else {
            at = at.max(last);
            self.network.conns[conn].last[to as usize] = at;
        }
        self.queue.push(at, What::Frame { conn, to, bytes: Rc::clone(bytes) });
    }

    pub(crate) fn frame(&mut self, conn: usize, to: End, bytes: &[u8]) {
        let (receiver, _) = self.network.conns[conn].end(to);
        let (_, peer) = self.network.conns[conn].end(if to == End::D { End::P } else { End::D });
        let open = self.agent(receiver).and_then(|agent| agent.links.get(&peer.agent));
        if open != Some(&conn) {
            return;
        }
        match codec::decode(bytes) {
            Ok(Some((message, used))) if used == bytes.len() => {
                self.deliver(receiver, peer, message);
            }
            other => {
                self.broken(Oracle::Codec, None, || format!("a frame became {other:?}"));
            }
        }
    }

    /// A connection breaks; each side learns of it at its own time.
    pub(crate) fn cut(&mut self, conn: usize, d_after: u64, p_after: u64) {
        if std::mem::replace(&mut self.network.conns[conn].broken, true) {
            return;
        }
        self.queue.push(self.now + d_after, What::Lost { conn, at: End::D });
        self.queue.push(self.now + p_after, What::Lost { conn, at: End::P });
    }

    /// A connection breaks in one of the ways in which they do.
    pub(crate) fn break_somehow(&mut self, conn: usize) {
        let (soon, late) = (self.between(0, 50 * MS), self.between(HEARTBEAT / 2, HEARTBEAT));
        match self.between(0, 4) {
            0 => self.cut(conn, soon, late),
            1 => self.cut(conn, late, soon),
            2 => self.cut(conn, late, late / 2 + HEARTBEAT / 4),
            _ => self.cut(conn, soon, soon / 2),
        }
    }

    pub(crate) fn partition(&mut self, a: usize, b: usize, time: u64) {
        self.network.partitions.push((a, b, self.now + time));
        if time < HEARTBEAT / 2 {
            return;
        }
        let between = self.network.of(|who| who.engine == a);
        for conn in between {
            let Conn { d, p, .. } = &self.network.conns[conn];
            if d.0.engine == b || p.0.engine == b {
                let after = |world: &mut Self| world.between(HEARTBEAT / 2, HEARTBEAT);
                let (d, p) = (after(self), after(self));
                self.cut(conn, d, p);
            }
        }
    }

    /// One side takes a connection for dead.
    pub(crate) fn lost(&mut self, conn: usize, at: End) {
        let (who, _) = self.network.conns[conn].end(at);
        let Some(agent) = self.agent_mut(who) else { return };
        let peer = agent.links.iter().find(|(_, link)| **link == conn).map(|(peer, _)| *peer);
        let Some(peer) = peer else { return };
        agent.links.remove(&peer);
        self.note(None, || format!("{who:?} loses {peer:?}"));
        self.disconnect(who, peer);
        self.oracles.peer_lost(self.now, who, peer);
        self.oracles.claims.lost(who, peer);
        self.input(who, Input::PeerLost(peer));
        if self.agent(who).is_some_and(|agent| agent.may_be_read_by(peer)) {
            self.broken(Oracle::DeadPeer, None, || format!("{who:?} still lets {peer:?} read"));
        }
    }

    /// D begins to shake hands with all ranks of an engine.
    pub(crate) fn greet(&mut self, who: Who, address: Address) {
        let there = engine_at(&address);
        if self.agent_mut(who).is_some_and(|agent| !agent.greeting.insert(there)) {
            self.broken(Oracle::Limits, None, || format!("{who:?} greets {there} twice at once"));
        }
        let round = self.between(1, 4) * self.terrain.latency + self.delay();
        let apart = self.network.apart(who.engine, there);
        let standing = |engine: &super::engine::Engine| {
            engine.agents.iter().map(|agent| agent.paused).max().unwrap_or(0)
        };
        let silent = self.engines.get(there).map_or(0, standing).max(apart);
        let up = self
            .engines
            .get(there)
            .is_some_and(|engine| engine.up && engine.agents.iter().all(|agent| agent.up));
        let (after, reached) = if silent > self.now + HANDSHAKE || self.fault(Fault::Greet, 60) {
            (HANDSHAKE, false)
        } else if self.fault(Fault::Greet, 30) {
            (self.between(SEC, 14 * SEC), true)
        } else if !up {
            (if self.chance(500) { round } else { HANDSHAKE }, false)
        } else {
            (round.max(silent.saturating_sub(self.now)), true)
        };
        let at = self.now + after;
        self.queue.push(at, What::Greeted { who, address: Rc::new(address), reached });
    }

    pub(crate) fn greeted(&mut self, who: Who, address: &Address, reached: bool) {
        let Some(agent) = self.agent_mut(who) else { return };
        agent.greeting.remove(&engine_at(address));
        let address = address.clone();
        let acquaintance = if reached { self.meet(who, &address) } else { None };
        self.note(None, || format!("{who:?} greeted {}: {acquaintance:?}", address.engine_id));
        let input = match acquaintance {
            Some(acquaintance) => Input::Greeted { address, acquaintance },
            None => Input::NotGreeted { address, failure: Failure::Handshake },
        };
        self.input(who, input);
    }

    /// Opens the channels to the ranks that this worker speaks to.
    fn meet(&mut self, d: Who, address: &Address) -> Option<Acquaintance> {
        let there = engine_at(address);
        let engine = self.engines.get(there).filter(|engine| engine.up)?;
        if !engine.agents.iter().all(|agent| agent.up)
            || engine.agents.len() != address.rank_count()
        {
            return None;
        }
        let me = Rank(u32::try_from(d.rank).ok()?);
        let readers = &self.terrain.readers;
        let spoken_to = counterparts(readers, self.terrain.setup.decode_ranks, me);
        let mut acquaintance = Acquaintance { engine: engine.epoch, sources: [].into() };
        for (rank, readers) in spoken_to {
            let p = Who::of(there, rank, &self.engines[there].agents[rank]);
            let peer = self.engines[there].agents[rank].peer;
            acquaintance.sources.insert(peer.agent, readers);
            // A channel that is dead without this side's knowledge is kept as well.
            if self.agent(d)?.links.contains_key(&peer.agent) {
                continue;
            }
            let ours = self.agent(d)?.peer;
            let conn = self.network.open((d, ours), (p, peer));
            self.engines[there].agents[rank].links.insert(ours.agent, conn);
            self.agent_mut(d)?.links.insert(peer.agent, conn);
        }
        Some(acquaintance)
    }
}
