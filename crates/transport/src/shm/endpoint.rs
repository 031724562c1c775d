use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use strided::Blocks;

use super::address::{Address, PROVIDER};
use super::catalog::Catalog;
use super::desk::Asked;
use super::door::{Door, listen};
use super::open::Target;
use super::peer::Peer;
use super::{MAX_REGIONS, MAX_REGIONS_SHOWN, ShmConfig, Unusable};
use crate::ends::{Ends, Entrance};
use crate::{
    AgentId, BindError, BoundRegion, Capabilities, Card, ConnectError, Endpoint, Event, Fence,
    GrantError, GrantToken, Memory, PeerId, RegisterError, Registration, SubmitError, Transfer,
    TransferId,
};

/// An [`Endpoint`] between processes of one user on one host. Dropping it ends every connection
/// and joins every thread.
pub struct ShmEndpoint {
    config: ShmConfig,
    ends: Ends<Peer>,
    catalog: Arc<Catalog>,
    address: Address,
    _entrance: Entrance<Door, UnixListener>,
}

impl ShmEndpoint {
    /// Listens, and starts to serve.
    ///
    /// # Errors
    /// [`BindError::Config`] for settings that cannot work, [`BindError::System`] when the
    /// system refuses.
    pub fn bind(config: ShmConfig) -> Result<Self, BindError> {
        config.check()?;
        let ends = Ends::new(config.max_in_flight)?;
        let catalog = Arc::new(Catalog::new()?);
        let address = Address::new(config.agent).map_err(BindError::system("find an address"))?;
        let listener = listen(address.name()).map_err(BindError::system("listen"))?;
        let door = Door::new(config.clone(), Arc::clone(&ends.grants), Arc::clone(&catalog));
        let entrance = Entrance::open(door, listener)?;
        Ok(Self { config, ends, catalog, address, _entrance: entrance })
    }
}

/// The address of a card, if it is one of this host.
fn address(card: &Card) -> Result<Address, ConnectError> {
    Address::of(card).map_err(|why| match why {
        Unusable::Provider { found } => ConnectError::Provider { own: PROVIDER, found },
        other => ConnectError::Address { address: card.address.clone(), why: other.to_string() },
    })
}

impl Endpoint for ShmEndpoint {
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
        let most = MAX_REGIONS_SHOWN.min(MAX_REGIONS.saturating_sub(self.catalog.regions()));
        if regions.len() > most {
            return Err(RegisterError::TooMany { regions: regions.len(), most });
        }
        let registration = self.ends.registry.register(&memory, regions)?;
        self.catalog.add(registration.generation, memory, regions);
        Ok(registration)
    }

    fn deregister(&mut self, registration: Registration) -> Result<(), RegisterError> {
        self.ends.deregister(registration)?;
        // Connections keep the memory alive until their readers have let go of it.
        self.catalog.remove(registration.generation);
        Ok(())
    }

    fn connect(&mut self, card: &Card) -> Result<PeerId, ConnectError> {
        let target = Target { address: address(card)?, agent: card.agent };
        let config = self.config.clone();
        self.ends.connect("kv-read", Peer::new, move |peer| peer.run(&target, &config))
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.ends.disconnect(peer);
    }

    fn submit(&mut self, transfer: Transfer) -> Result<(), SubmitError> {
        self.ends.submit(transfer, |peer, admitted| {
            let transfer = admitted.transfer;
            let asked = Asked {
                id: transfer.id,
                deadline: admitted.deadline,
                request_bytes: admitted.request.len(),
                target: admitted.target,
                sources: transfer.copies.iter().map(|copy| copy.source().clone()).collect(),
            };
            peer.submit(asked, transfer.token, &admitted.request)
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
        self.catalog.ring();
    }

    fn poll(&mut self, events: &mut Vec<Event>) {
        self.ends.poll(events);
    }

    fn ready_fd(&self) -> BorrowedFd<'_> {
        self.ends.ready_fd()
    }
}
