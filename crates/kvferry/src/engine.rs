use std::fmt;
use std::sync::Arc;

use connector::handshake::{DataCard, Handshake};
use connector::{AgentEpoch, EngineEpoch, Peer, Rank};
use kv_layout::{CacheLayout, DType};
use transport::{BoundRegion, Card, Memory};

use crate::StartError;

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
    /// The life of the engine that this worker belongs to: 64 random bits that its scheduler
    /// draws at start and gives to every worker. An engine of one worker may leave it to kvferry.
    pub epoch: Option<EngineEpoch>,
    /// Which of the engine's ranks this worker is.
    pub rank: Rank,
    /// Where each of the engine's ranks keeps its KV cache, in their order.
    pub layouts: Arc<[CacheLayout]>,
    /// The memory that it lies in.
    pub memory: Arc<dyn Memory>,
    /// Where the regions of this rank's layout lie in that memory.
    pub regions: Vec<BoundRegion>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("name", &self.name)
            .field("model", &self.model)
            .field("rank", &self.rank.0)
            .field("ranks", &self.layouts.len())
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Where this rank keeps its KV cache.
    ///
    /// # Errors
    /// [`StartError::Rank`]: the engine has no such rank.
    pub(crate) fn layout(&self) -> Result<&CacheLayout, StartError> {
        let refused = StartError::Rank { rank: self.rank.0, ranks: self.layouts.len() };
        self.layouts.get(self.rank.0 as usize).ok_or(refused)
    }

    /// What this worker tells a peer about itself.
    pub(crate) fn handshake(&self, me: Peer, cards: Vec<Card>) -> Result<Handshake, StartError> {
        let card = |card: Card| DataCard {
            provider: card.provider.to_owned(),
            agent: AgentEpoch(card.agent.0),
            address: card.address,
        };
        Ok(Handshake {
            engine: me.engine,
            agent: me.agent,
            rank: self.rank,
            ranks: u32::try_from(self.layouts.len()).unwrap_or(u32::MAX),
            model: self.model.clone(),
            revision: self.revision.clone(),
            dtype: self.dtype,
            layout: self.layout()?.clone(),
            cards: cards.into_iter().map(card).collect(),
        })
    }
}
