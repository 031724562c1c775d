//! One agent: its state machine, its endpoint, and the task that drives both.

mod choose;
mod driver;
mod grants;
mod greeter;
mod greetings;
mod links;
mod neighbours;
mod part;
mod reads;
mod wait;

use std::sync::Arc;

use connector::handshake::Handshake;
use connector::message::Message;
use connector::{
    AgentEpoch, ClaimId, Counts, EngineEpoch, Failure, Fetch, Lease, Offer, Peer, ReadToken, Worker,
};
use strided::BlockCopy;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use transport::session::{Channel, Greeting, Hello, Role, Secret, Trust, VERSIONS};
use transport::{AgentId, Endpoint};

use crate::{Config, Engine, FetchError, StartError, providers};
pub use choose::Path;
use driver::Driver;
pub(crate) use grants::granted;
use greeter::Greeter;
pub(crate) use greeter::{Remote, RemoteRank};
use greetings::Greetings;
pub(crate) use links::Fresh;
use links::Link;
pub(crate) use part::FreedLease;
use part::Part;

/// What the driver is asked to do or told.
pub(crate) enum Command {
    /// P: a decode agent has opened a control channel.
    Attach(Fresh),
    /// A message came over it.
    Heard { from: Peer, link: u64, message: Message },
    /// It is closed.
    Closed { agent: AgentEpoch, link: u64 },
    /// P: keep the blocks of a lease.
    Lease(Lease),
    /// D: claim a lease.
    Claim { fetch: Fetch, hold: Hold, reply: oneshot::Sender<Offers> },
    /// D: read what was offered, then commit.
    Read { claim: ClaimId, reads: Vec<Read>, reply: oneshot::Sender<Ended> },
    /// D: the request is no longer wanted. Ignored unless this is the ticket of its claim.
    Abort { claim: ClaimId, ticket: u64 },
    /// Let go of the engine's memory, and say when nobody can touch it any more.
    Withdraw(oneshot::Sender<()>),
    /// The memory is there again.
    Restored,
    /// What the machine holds.
    Counts(oneshot::Sender<Counts>),
}

/// What a claim led to.
pub(crate) type Offers = Result<(Arc<Remote>, Vec<Offer>), FetchError>;

/// How a claim ended: `Err(None)` when it was given up as wished.
pub(crate) type Ended = Result<(), Option<Failure>>;

/// What the driver keeps for as long as a claim may touch blocks.
pub(crate) struct Hold {
    /// Tells this claim from a refused second one of the same name.
    pub(crate) ticket: u64,
    /// Why the claim ended while nobody asked for anything; dropped with the claim, once nothing
    /// can touch its blocks.
    pub(crate) gone: watch::Sender<Option<Failure>>,
}

/// What to read from one peer.
pub(crate) struct Read {
    pub(crate) peer: AgentEpoch,
    pub(crate) token: ReadToken,
    pub(crate) copies: Vec<BlockCopy>,
}

/// Commands that may wait for the driver.
const QUEUE: usize = 1024;

/// A running agent; dropping it stops the driver and closes every channel.
pub(crate) struct Agent {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) handshake: Arc<Handshake>,
    /// Where what must still be said is said, also from outside of it.
    pub(crate) runtime: Handle,
    /// What it shows its peers, if anything.
    pub(crate) trust: Trust,
    /// D: how each known rank of a prefill engine is read.
    pub(crate) paths: watch::Receiver<Vec<Path>>,
    _driver: AbortOnDrop,
}

impl Agent {
    /// Opens the endpoint, registers the engine's memory and starts the driver: of a prefill
    /// agent, if there is somebody to hear of freed leases, else of a decode agent. Data channels
    /// listen at a free port of `listen`'s address.
    pub(crate) fn start(
        config: &Config,
        engine: &Engine,
        freed: Option<mpsc::UnboundedSender<FreedLease>>,
    ) -> Result<Self, StartError> {
        config.check()?;
        let epoch = engine.epoch.map_or_else(|| random_u64().map(EngineEpoch), Ok)?;
        let me = Peer { engine: epoch, agent: AgentEpoch(random_u64()?) };
        let mut endpoint = providers::open(config, me)?;
        endpoint.register(Arc::clone(&engine.memory), &engine.regions)?;
        let handshake = Arc::new(engine.handshake(me, endpoint.cards())?);
        let worker = Worker::new(me, engine.rank, config.bounds, random()?)?;
        let (commands, inbox) = mpsc::channel(QUEUE);
        let greeter = || {
            let (handshake, layouts) = (Arc::clone(&handshake), Arc::clone(&engine.layouts));
            let greeter = Greeter::new(config, handshake, layouts, commands.downgrade());
            Box::new(Greetings::new(greeter))
        };
        let part = freed.map_or_else(|| Part::Decode(greeter()), Part::Prefill);
        let driver = Driver::new(worker, Box::new(endpoint), engine.layout()?, config, part);
        let (paths, trust) = (driver.neighbours.paths(), config.trust());
        let driver = AbortOnDrop(tokio::spawn(driver.run(inbox)?));
        let runtime = Handle::current();
        Ok(Self { commands, handshake, runtime, trust, paths, _driver: driver })
    }

    /// Ends everything that touches the engine's memory, and returns when nothing does; at once
    /// where the agent has stopped.
    pub(crate) async fn withdraw(&self) {
        let (reply, withdrawn) = oneshot::channel();
        if self.commands.send(Command::Withdraw(reply)).await.is_ok() {
            let _ = withdrawn.await;
        }
    }

    /// Begins anew after [`withdraw`](Self::withdraw).
    pub(crate) async fn restore(&self) {
        let _ = self.commands.send(Command::Restored).await;
    }

    /// What the agent holds; `None` once it has stopped.
    pub(crate) async fn counts(&self) -> Option<Counts> {
        let (reply, counts) = oneshot::channel();
        self.commands.send(Command::Counts(reply)).await.ok()?;
        counts.await.ok()
    }
}

/// The first words on a new control channel, with randomness of its own.
pub(crate) fn greeting(
    role: Role,
    ours: &Handshake,
    secret: Option<Arc<Secret>>,
) -> std::io::Result<Greeting> {
    let hello = Hello {
        versions: VERSIONS,
        role,
        channel: Channel::Control,
        stream: 0,
        streams: 1,
        engine: ours.engine.0,
        agent: AgentId(ours.agent.0),
        random: random()?,
        proves: false,
    };
    Ok(match role {
        Role::Decode => Greeting::dialler(hello, secret),
        _ => Greeting::listener(hello, secret),
    })
}

/// Random bytes from the system.
pub(crate) fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes)
}

/// 64 random bits of the system: the epoch of an engine, the nonce of a lease.
///
/// # Errors
/// The system has none.
pub fn random_u64() -> std::io::Result<u64> {
    random().map(u64::from_le_bytes)
}

/// A task that ends with its owner.
pub(crate) struct AbortOnDrop(pub(crate) JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
