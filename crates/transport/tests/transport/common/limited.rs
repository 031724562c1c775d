//! A provider with fewer means than its contract has room for, as drivers and cards have.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use strided::Blocks;
use transport::{
    AgentId, BoundRegion, Capabilities, Card, ConnectError, Endpoint, Event, GrantError,
    GrantToken, Memory, PeerId, RegisterError, Registration, SubmitError, Transfer, TransferId,
};

/// Registers so many regions at most, and is otherwise what it wraps.
pub struct Limited {
    pub inner: Box<dyn Endpoint>,
    pub most: usize,
}

impl Endpoint for Limited {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn card(&self) -> Card {
        self.inner.card()
    }

    fn register(
        &mut self,
        memory: Arc<dyn Memory>,
        regions: &[BoundRegion],
    ) -> Result<Registration, RegisterError> {
        if regions.len() > self.most {
            return Err(RegisterError::TooMany { regions: regions.len(), most: self.most });
        }
        self.inner.register(memory, regions)
    }

    fn deregister(&mut self, registration: Registration) -> Result<(), RegisterError> {
        self.inner.deregister(registration)
    }

    fn connect(&mut self, card: &Card) -> Result<PeerId, ConnectError> {
        self.inner.connect(card)
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.inner.disconnect(peer);
    }

    fn submit(&mut self, transfer: Transfer) -> Result<(), SubmitError> {
        self.inner.submit(transfer)
    }

    fn cancel(&mut self, id: TransferId) {
        self.inner.cancel(id);
    }

    fn grant(
        &mut self,
        reader: AgentId,
        token: GrantToken,
        blocks: Vec<Blocks>,
    ) -> Result<(), GrantError> {
        self.inner.grant(reader, token, blocks)
    }

    fn revoke(&mut self, token: GrantToken) {
        self.inner.revoke(token);
    }

    fn poll(&mut self, events: &mut Vec<Event>) {
        self.inner.poll(events);
    }

    fn ready_fd(&self) -> BorrowedFd<'_> {
        self.inner.ready_fd()
    }
}
