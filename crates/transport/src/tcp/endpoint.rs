use std::net::{SocketAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use strided::Blocks;

use super::TcpConfig;
use super::dial::Target;
use super::door::Door;
use super::ears::Ears;
use super::incoming::Incoming;
use super::peer::Peer;
use crate::ends::{Ends, Entrance};
use crate::{
    AgentId, BindError, BoundRegion, Capabilities, Card, ConnectError, Endpoint, Event, Fence,
    GrantError, GrantToken, Memory, PeerId, RegisterError, Registration, SubmitError, Transfer,
    TransferId,
};

const PROVIDER: &str = "tcp";

/// An [`Endpoint`] over TCP. Dropping it ends every connection and joins every thread.
pub struct TcpEndpoint {
    config: TcpConfig,
    ends: Ends<Peer>,
    ears: Arc<Ears>,
    address: SocketAddr,
    _entrance: Entrance<Door, TcpListener>,
}

impl TcpEndpoint {
    /// Listens, and starts to serve.
    ///
    /// # Errors
    /// [`BindError::Config`] or [`BindError::NotLoopback`] for settings that cannot work,
    /// [`BindError::System`] when the system refuses.
    pub fn bind(config: TcpConfig) -> Result<Self, BindError> {
        config.check()?;
        let ends = Ends::new(config.max_in_flight)?;
        let ears = Ears::new(&ends.events).map_err(BindError::system("make an epoll"))?;
        let listener = TcpListener::bind(config.listen).map_err(BindError::system("listen"))?;
        let address = listener.local_addr().map_err(BindError::system("listen"))?;
        let door = Door::new(config.clone(), Arc::clone(&ends.grants));
        let entrance = Entrance::open(door, listener)?;
        Ok(Self { config, ends, ears: Arc::new(ears), address, _entrance: entrance })
    }
}

/// The address of a card, if it may be used by a side that has a secret or none.
fn address(card: &Card, has_secret: bool) -> Result<SocketAddr, ConnectError> {
    if card.provider != PROVIDER {
        return Err(ConnectError::Provider { own: PROVIDER, found: card.provider });
    }
    let unusable = |why: &str| {
        let (address, why) = (card.address.clone(), why.to_owned());
        ConnectError::Address { address, why }
    };
    let address: SocketAddr =
        card.address.parse().map_err(|_| unusable("not an IP address and port"))?;
    let ip = address.ip().to_canonical();
    if !has_secret && !ip.is_loopback() {
        return Err(ConnectError::NotLoopback { address: card.address.clone() });
    }
    if ip.is_unspecified() {
        return Err(unusable("it names no host"));
    }
    Ok(address)
}

impl Endpoint for TcpEndpoint {
    fn capabilities(&self) -> Capabilities {
        Capabilities { one_sided: false, ordered: false, native_dims: 4, fence: Fence::Peer }
    }

    fn card(&self) -> Card {
        let address = self.address.to_string();
        Card { provider: PROVIDER, agent: self.config.agent, address }
    }

    fn register(
        &mut self,
        memory: Arc<dyn Memory>,
        regions: &[BoundRegion],
    ) -> Result<Registration, RegisterError> {
        self.ends.registry.register(&memory, regions)
    }

    fn deregister(&mut self, registration: Registration) -> Result<(), RegisterError> {
        self.ends.deregister(registration)
    }

    fn connect(&mut self, card: &Card) -> Result<PeerId, ConnectError> {
        let address = address(card, self.config.trust.secret.is_some())?;
        let (target, config) = (Target { address, agent: card.agent }, self.config.clone());
        let make = |id, events| Ok(Peer::new(id, events, Arc::clone(&self.ears)));
        self.ends.connect("kv-receive-0", make, move |peer| peer.run(target, &config))
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.ends.disconnect(peer);
    }

    fn submit(&mut self, transfer: Transfer) -> Result<(), SubmitError> {
        self.ends.submit(transfer, |peer, admitted| {
            let (id, len) = (admitted.transfer.id, admitted.request.len());
            let incoming = Incoming::new(id, admitted.target, admitted.deadline, len);
            peer.submit(incoming, admitted.transfer.token, &admitted.request)
        })
    }

    fn cancel(&mut self, id: TransferId) {
        self.ends.cancel(id);
    }

    fn grant(
        &mut self,
        reader: AgentId,
        token: GrantToken,
        blocks: Vec<Blocks>,
    ) -> Result<(), GrantError> {
        self.ends.grant(reader, token, &blocks)
    }

    fn revoke(&mut self, token: GrantToken) {
        self.ends.grants.revoke(token);
    }

    fn poll(&mut self, events: &mut Vec<Event>) {
        for peer in self.ears.heard() {
            self.ends.peer(peer).inspect(|peer| peer.hear());
        }
        self.ends.poll(events);
    }

    fn ready_fd(&self) -> BorrowedFd<'_> {
        self.ears.ready_fd()
    }
}
