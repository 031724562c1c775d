use std::fmt;
use std::sync::Arc;

use connector::handshake::{DataCard, Handshake};
use connector::{AgentEpoch, Peer};
use kv_layout::{CacheLayout, DType};
use transport::{BoundRegion, Card, Memory};

/// One worker of an engine, as kvferry must know it.
#[derive(Clone)]
pub struct Engine {
    /// A name for logs and routers.
    pub name: String,
    /// Model id; must be equal on both sides, like the next two.
    pub model: String,
    /// Revision of the model.
    pub revision: String,
    /// Element type of the KV cache.
    pub dtype: DType,
    /// Where the KV cache lies.
    pub layout: CacheLayout,
    /// The memory that it lies in.
    pub memory: Arc<dyn Memory>,
    /// Where the layout's regions lie in that memory.
    pub regions: Vec<BoundRegion>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("name", &self.name)
            .field("model", &self.model)
            .field("layers", &self.layout.layers.len())
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// What this worker tells a peer about itself.
    pub(crate) fn handshake(&self, me: Peer, card: &Card) -> Handshake {
        let card = DataCard {
            provider: card.provider.to_owned(),
            agent: AgentEpoch(card.agent.0),
            address: card.address.clone(),
        };
        Handshake {
            engine: me.engine,
            agent: me.agent,
            model: self.model.clone(),
            revision: self.revision.clone(),
            dtype: self.dtype,
            layout: self.layout.clone(),
            cards: vec![card],
        }
    }
}
