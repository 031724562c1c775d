//! The task that carries inputs, actions and events between the machine and the world.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use connector::params::Address;
use connector::{Action, AgentEpoch, ClaimId, Event, Failure, Fetch, Input, Offer, Worker};
use kv_layout::CacheLayout;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};
use transport::{AgentId, Endpoint, Event as Moved, GrantToken};

use super::choose::Choice;
use super::granted;
use super::greeter::Meeting;
use super::greetings::Greeted;
use super::neighbours::{Admission, Neighbour, Neighbours};
use super::part::Part;
use super::reads::Reads;
use super::wait::{readable, sleep_until};
use super::{Command, Ended, Fresh, Hold, Offers, Read};
use crate::{Config, FetchError};

/// Who waits for what of a claim.
enum Waiting {
    Offer(oneshot::Sender<Offers>),
    Reading(oneshot::Sender<Ended>),
    /// Offered, and the engine has not said yet what to read.
    Nobody,
    /// Ended before the engine said so.
    Gone(Ended),
}

/// One claim that has not ended, or whose end nobody has heard yet.
struct Claimed {
    hold: Hold,
    waiting: Waiting,
    /// Where its engine is.
    address: Address,
}

pub(super) struct Driver {
    worker: Worker,
    /// Before `claims`: it waits for its transfers when it is dropped, and only then may the
    /// holds of claims go, which say that nothing touches their blocks.
    endpoint: Box<dyn Endpoint>,
    layout: CacheLayout,
    started: Instant,
    pub(super) neighbours: Neighbours,
    reads: Reads,
    claims: BTreeMap<ClaimId, Claimed>,
    part: Part,
    /// Who waits until nobody touches the memory any more.
    withdrawals: Vec<oneshot::Sender<()>>,
}

impl Driver {
    pub(super) fn new(
        worker: Worker,
        endpoint: Box<dyn Endpoint>,
        layout: &CacheLayout,
        config: &Config,
        part: Part,
    ) -> Self {
        Self {
            worker,
            endpoint,
            layout: layout.clone(),
            started: Instant::now(),
            neighbours: Neighbours::default(),
            reads: Reads::new(config.read_timeout),
            claims: BTreeMap::new(),
            part,
            withdrawals: Vec::new(),
        }
    }

    /// The driver's loop, until every sender of commands is gone.
    pub(super) fn run(
        mut self,
        mut inbox: mpsc::Receiver<Command>,
    ) -> std::io::Result<impl Future<Output = ()> + Send> {
        let ready = self.endpoint.ready_fd().try_clone_to_owned()?;
        #[expect(
            deprecated,
            reason = "unsound for types that lie about their descriptor, which an OwnedFd cannot"
        )]
        let ready = AsyncFd::new(ready)?;
        Ok(async move {
            loop {
                let due = self.worker.poll_timeout();
                let due = due.and_then(|time| self.started.checked_add(time));
                tokio::select! {
                    command = inbox.recv() => match command {
                        Some(command) => self.command(command),
                        None => return,
                    },
                    () = readable(&ready) => self.moved(),
                    greeted = self.part.greeted() => self.greeted(greeted),
                    () = sleep_until(due) => self.worker.handle_timeout(self.started.elapsed()),
                }
                self.settle();
            }
        })
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn input(&mut self, input: Input) {
        self.worker.handle(self.now(), input);
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Attach(fresh) => self.admit(fresh),
            Command::Heard { from, link, message } if self.neighbours.has(from.agent, link) => {
                self.input(Input::Message { from, message });
            }
            Command::Closed { agent, link } if self.neighbours.has(agent, link) => {
                self.lose(agent);
            }
            // Of a channel whose place another has taken.
            Command::Heard { .. } | Command::Closed { .. } => {}
            Command::Lease(lease) => self.input(Input::Lease(lease)),
            Command::Claim { fetch, hold, reply } => self.claim(fetch, hold, reply),
            Command::Read { claim, reads, reply } => self.read(claim, reads, reply),
            Command::Abort { claim, ticket } => self.abort(claim, ticket),
            Command::Withdraw(reply) => {
                self.withdrawals.push(reply);
                self.input(Input::Withdraw);
            }
            Command::Restored => self.input(Input::Restored),
            // Whoever asked may be gone.
            Command::Counts(reply) => drop(reply.send(self.worker.counts())),
        }
    }

    /// P: a decode agent uses a channel.
    fn admit(&mut self, fresh: Fresh) {
        match self.neighbours.admission(&fresh) {
            Admission::New => {}
            Admission::InPlaceOf(agent) => self.lose(agent),
            Admission::Refused => return,
        }
        self.neighbours.add(fresh, None, None);
    }

    fn greeted(&mut self, (address, greeted): Greeted) {
        let input = match greeted.and_then(|meeting| self.meet(&address, meeting)) {
            Ok(acquaintance) => Input::Greeted { address, acquaintance },
            Err(why) => {
                self.part.greetings(|greetings| greetings.refused(&address, why));
                Input::NotGreeted { address, failure: Failure::Handshake }
            }
        };
        self.input(input);
    }

    /// Takes the channels to an engine into use.
    fn meet(
        &mut self,
        address: &Address,
        meeting: Meeting,
    ) -> Result<connector::Acquaintance, FetchError> {
        let Meeting { remote, acquaintance, mut channels } = meeting;
        // Greeted twice at the same time, under two names: the channel that is in use stays.
        channels.retain(|(fresh, ..)| self.neighbours.get(fresh.peer.agent).is_none());
        let mut data = Vec::new();
        for (_, _, choice) in &channels {
            let endpoint = self.endpoint.as_mut();
            match choice.as_ref().map(|choice| choice.connect(endpoint)).transpose() {
                Ok(peer) => data.push(peer),
                Err(why) => {
                    let connected = data.into_iter().flatten();
                    connected.for_each(|peer| self.endpoint.disconnect(peer));
                    return Err(why.into());
                }
            }
        }
        for ((fresh, rank, choice), data) in channels.into_iter().zip(data) {
            self.neighbours.add(fresh, data, choice.as_ref().map(Choice::path));
            self.part.greetings(|greetings| greetings.greeter.met(Arc::clone(&rank)));
        }
        self.part.greetings(|greetings| greetings.known(address, remote));
        Ok(acquaintance)
    }

    fn claim(&mut self, fetch: Fetch, hold: Hold, reply: oneshot::Sender<Offers>) {
        if self.claims.contains_key(&fetch.claim) {
            let _ = reply.send(Err(FetchError::UnderWay));
            return;
        }
        let address = fetch.address.clone();
        let claimed = Claimed { hold, waiting: Waiting::Offer(reply), address };
        self.claims.insert(fetch.claim.clone(), claimed);
        self.input(Input::Fetch(fetch));
    }

    fn abort(&mut self, claim: ClaimId, ticket: u64) {
        let Some(claimed) = self.claims.get(&claim) else { return };
        if claimed.hold.ticket != ticket {
            return;
        }
        if let Waiting::Gone(_) = claimed.waiting {
            self.claims.remove(&claim);
        }
        self.input(Input::Abort(claim));
    }

    fn read(&mut self, claim: ClaimId, reads: Vec<Read>, reply: oneshot::Sender<Ended>) {
        let Some(claimed) = self.claims.get_mut(&claim) else { return };
        match std::mem::replace(&mut claimed.waiting, Waiting::Reading(reply)) {
            Waiting::Nobody => {}
            Waiting::Gone(ended) => return self.ended(&claim, ended),
            // An engine reads only what it was offered, and once.
            other @ (Waiting::Offer(_) | Waiting::Reading(_)) => {
                claimed.waiting = other;
                return;
            }
        }
        let peers = self.reads.want(&claim, reads).into_iter().collect();
        self.input(Input::Read { claim, peers });
    }

    fn lose(&mut self, agent: AgentEpoch) {
        self.part.greetings(|greetings| greetings.lost(agent));
        if let Some(Neighbour { data, .. }) = self.neighbours.remove(agent) {
            tracing::info!(agent = agent.0, "peer lost");
            data.into_iter().for_each(|peer| self.endpoint.disconnect(peer));
            self.input(Input::PeerLost(agent));
        }
    }

    /// Takes what the endpoint has to tell.
    fn moved(&mut self) {
        let mut events = Vec::new();
        self.endpoint.poll(&mut events);
        for event in events {
            match event {
                Moved::Completion { id, outcome } => {
                    let told = self.reads.completed(self.endpoint.as_mut(), id, &outcome);
                    told.into_iter().for_each(|input| self.input(input));
                }
                Moved::PeerDown { peer, why } => {
                    tracing::info!(peer = peer.0, %why, "data channels lost");
                    if let Some(agent) = self.neighbours.with_data(peer) {
                        self.lose(agent);
                    }
                }
                Moved::Revoked { token } => {
                    self.input(Input::Revoked(connector::ReadToken(token.0)))
                }
                Moved::Overdue { id } => {
                    tracing::warn!(transfer = id.0, "a read is overdue");
                    let claim = self.reads.claim_of(id);
                    claim.into_iter().for_each(|claim| self.input(Input::Overdue(claim)));
                }
                Moved::Fenced { peer } => tracing::info!(peer = peer.0, "peer fenced"),
                _ => {}
            }
        }
    }

    /// Does what the machine decided, until it has nothing more to say.
    fn settle(&mut self) {
        loop {
            if let Some(action) = self.worker.poll_action() {
                self.act(action);
            } else if let Some(event) = self.worker.poll_event() {
                self.tell(event);
            } else {
                return;
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send(message) => {
                let agent = message.to;
                let Some(near) = self.neighbours.get(agent) else {
                    // What was asked of it meanwhile would wait for an answer in vain.
                    self.part.greetings(|greetings| greetings.lost(agent));
                    return self.input(Input::PeerLost(agent));
                };
                if near.link.messages.try_send(message).is_err() {
                    self.lose(agent);
                }
            }
            Action::Grant { reader, token, tables } => {
                let (reader, token) = (AgentId(reader.0), GrantToken(token.0));
                let granted = granted(&self.layout, &tables).map_err(|why| why.to_string());
                let granted = granted.and_then(|blocks| {
                    let granted = self.endpoint.grant(reader, token, blocks);
                    granted.map_err(|why| why.to_string())
                });
                if let Err(why) = granted {
                    // The reader has its answer already, and learns it when it reads.
                    tracing::error!(%why, "blocks cannot be granted");
                }
            }
            Action::Revoke { token } => self.endpoint.revoke(GrantToken(token.0)),
            Action::Greet { address } => {
                self.part.greetings(|greetings| greetings.greet(address));
            }
            Action::Forget { ranks } => {
                self.part.greetings(|greetings| greetings.forget(&ranks));
            }
            Action::Read { claim, peer } => {
                let data = self.neighbours.get(peer).and_then(|near| near.data);
                let told = self.reads.start(self.endpoint.as_mut(), (claim, peer), data);
                told.into_iter().for_each(|input| self.input(input));
            }
            Action::Cancel { claim, peer } => {
                if let Some(input) = self.reads.cancel(self.endpoint.as_mut(), &(claim, peer)) {
                    self.input(input);
                }
            }
        }
    }

    fn tell(&mut self, event: Event) {
        match event {
            Event::Freed { lease, why } => {
                tracing::debug!(request = %lease.request, ?why, "blocks freed");
                if let Part::Prefill(freed) = &self.part {
                    let _ = freed.send((lease, why));
                }
            }
            Event::Offered { claim, offers } => self.offered(claim, offers),
            Event::Received { claim } => self.ended(&claim, Ok(())),
            Event::Failed { claim, failure } => self.ended(&claim, Err(Some(failure))),
            Event::Released { claim } => self.ended(&claim, Err(None)),
            Event::Nothing { claim } => self.nothing(&claim),
            Event::Withdrawn => {
                for reply in std::mem::take(&mut self.withdrawals) {
                    let _ = reply.send(());
                }
            }
        }
    }

    fn offered(&mut self, claim: ClaimId, offers: Vec<Offer>) {
        let Some(claimed) = self.claims.get_mut(&claim) else { return };
        let remote = self.part.greetings(|greetings| greetings.engine(&claimed.address)).flatten();
        // Another life of the engine may have been greeted since it was asked.
        let remote = remote.filter(|remote| remote.has_all(&offers));
        let Some(remote) = remote else { return self.input(Input::Abort(claim)) };
        let waiting = std::mem::replace(&mut claimed.waiting, Waiting::Nobody);
        let Waiting::Offer(reply) = waiting else { return };
        // Whoever does not take it, now or from the channel, aborts: see `decode::Guard`.
        let _ = reply.send(Ok((remote, offers)));
    }

    /// Nothing is to be read at this rank; it has told other ranks that they may free.
    fn nothing(&mut self, claim: &ClaimId) {
        let Some(Claimed { waiting, .. }) = self.claims.remove(claim) else { return };
        if let Waiting::Offer(reply) = waiting {
            let _ = reply.send(Err(FetchError::Nothing));
        }
    }

    fn ended(&mut self, claim: &ClaimId, ended: Ended) {
        self.reads.forget(claim);
        let Some(Claimed { hold, waiting, address }) = self.claims.remove(claim) else { return };
        match waiting {
            Waiting::Reading(reply) => {
                let _ = reply.send(ended);
            }
            Waiting::Offer(reply) => {
                let failure = ended.err().flatten().unwrap_or(Failure::Over);
                let _ = reply.send(Err(self.explain(&address, failure)));
            }
            Waiting::Nobody if ended != Err(None) => {
                hold.gone.send_replace(ended.clone().err().flatten());
                let claimed = Claimed { hold, waiting: Waiting::Gone(ended), address };
                self.claims.insert(claim.clone(), claimed);
            }
            Waiting::Nobody | Waiting::Gone(_) => {}
        }
    }

    /// What is behind a failure, as far as the machine does not know it.
    fn explain(&mut self, address: &Address, failure: Failure) -> FetchError {
        let why = match failure {
            Failure::Handshake => self.part.greetings(|greetings| greetings.why(address)),
            _ => None,
        };
        why.flatten().unwrap_or(FetchError::Failed(failure))
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
