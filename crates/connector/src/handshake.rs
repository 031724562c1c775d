//! What two workers tell each other once their channel is open: JSON after the hello.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use kv_layout::{CacheLayout, DType, PlacedLayer, Role};
use serde::{Deserialize, Serialize};

use crate::class::Class;
use crate::ids::{AgentEpoch, EngineEpoch, Rank};
use crate::limits::{MAX_GROUPS, MAX_NAME};

/// Bytes of one body: 4 MiB.
pub const MAX_BODY: usize = 4 << 20;
/// Layers of one worker, and its regions.
pub const MAX_LAYERS: usize = 8192;
/// Data cards of one worker.
pub const MAX_CARDS: usize = 16;

/// One worker's account of itself. Unknown fields are ignored when it is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshake {
    /// Its engine.
    pub engine: EngineEpoch,
    /// Itself.
    pub agent: AgentEpoch,
    /// Its place in the engine.
    pub rank: Rank,
    /// How many ranks the engine has.
    pub ranks: u32,
    /// Model id.
    pub model: String,
    /// Revision of the model.
    pub revision: String,
    /// Element type of the KV cache.
    pub dtype: DType,
    /// Where it keeps the KV cache.
    pub layout: CacheLayout,
    /// How its memory is reached, one card per provider.
    pub cards: Vec<DataCard>,
}

/// How one provider of a worker is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataCard {
    /// The provider's name, such as `tcp`.
    pub provider: String,
    /// The agent that answers there.
    pub agent: AgentEpoch,
    /// The provider's own address, as text.
    pub address: String,
}

/// Why a body is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// More of something than a worker may have.
    #[error("{count} {what} are more than the {limit} allowed")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Bytes that are no such JSON.
    #[error("the body is no handshake")]
    Malformed(#[source] serde_json::Error),
}

impl HandshakeError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::TooMany { .. } => Class::Exhausted,
            Self::Malformed(_) => Class::Protocol,
        }
    }
}

/// A field that must be equal and is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} differs: {ours} here, {theirs} at the peer")]
pub struct Mismatch {
    /// Its name, with the layer's where it belongs to one.
    pub field: String,
    /// The value here.
    pub ours: String,
    /// The value there.
    pub theirs: String,
}

impl Mismatch {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        Class::Config
    }
}

impl Handshake {
    /// Writes the body.
    ///
    /// # Errors
    /// What the peer would refuse.
    pub fn to_json(&self) -> Result<Vec<u8>, HandshakeError> {
        self.limited()?;
        let body = serde_json::to_vec(self).map_err(HandshakeError::Malformed)?;
        limit("bytes", body.len(), MAX_BODY)?;
        Ok(body)
    }

    /// Reads a body. The layout's numbers are the planner's to check.
    ///
    /// # Errors
    /// More than the limits allow, or not a handshake.
    pub fn from_json(body: &[u8]) -> Result<Self, HandshakeError> {
        limit("bytes", body.len(), MAX_BODY)?;
        let read: Self = serde_json::from_slice(body).map_err(HandshakeError::Malformed)?;
        read.limited()?;
        Ok(read)
    }

    fn limited(&self) -> Result<(), HandshakeError> {
        let CacheLayout { regions, groups, layers } = &self.layout;
        limit("regions", regions.len(), MAX_LAYERS)?;
        limit("groups", groups.len(), MAX_GROUPS)?;
        limit("layers", layers.len(), MAX_LAYERS)?;
        limit("data cards", self.cards.len(), MAX_CARDS)?;
        let cards = self.cards.iter().flat_map(|card| [&card.provider, &card.address]);
        let names = layers.iter().map(|layer| &layer.name).chain(cards);
        let longest = names.chain([&self.model, &self.revision]).map(String::len).max();
        limit("bytes of a name", longest.unwrap_or(0), MAX_NAME)
    }
}

fn limit(what: &'static str, count: usize, limit: usize) -> Result<(), HandshakeError> {
    if count > limit { Err(HandshakeError::TooMany { what, count, limit }) } else { Ok(()) }
}

/// Compares, field by field, what two workers must have in common: model, revision, dtype, and
/// of each layer that both have its kind, its packing and the bytes of each of its parts.
///
/// Heads, blocks, groups and the set of layers may differ with the parallelism: whether every
/// layer finds its source is the planner's to say, which sees all ranks.
///
/// # Errors
/// The first field that differs, with both values.
pub fn compatible(ours: &Handshake, theirs: &Handshake) -> Result<(), Mismatch> {
    same("model", &ours.model, &theirs.model)?;
    same("revision", &ours.revision, &theirs.revision)?;
    same("KV cache dtype", &ours.dtype, &theirs.dtype)?;
    let named: BTreeMap<_, _> = theirs.layout.layers.iter().map(|l| (&l.name, l)).collect();
    ours.layout
        .layers
        .iter()
        .filter_map(|layer| Some((layer, *named.get(&layer.name)?)))
        .try_for_each(|(ours, theirs)| same_layer(ours, theirs))
}

fn same_layer(ours: &PlacedLayer, theirs: &PlacedLayer) -> Result<(), Mismatch> {
    let field = |what: String| format!("{what} of {}", ours.name);
    same(field("kind".to_owned()), &ours.kind, &theirs.kind)?;
    let packing = |layer: &PlacedLayer| layer.packing.clone().unwrap_or_else(|| "plain".to_owned());
    same(field("packing".to_owned()), &packing(ours), &packing(theirs))?;
    let bytes = |layer: &PlacedLayer, role| {
        layer.parts.iter().find(|part| part.role == role).map_or(0, |part| part.bytes)
    };
    let roles: BTreeSet<Role> = ours.parts.iter().chain(&theirs.parts).map(|p| p.role).collect();
    roles.into_iter().try_for_each(|role| {
        same(field(format!("bytes of {role}")), &bytes(ours, role), &bytes(theirs, role))
    })
}

fn same<T: PartialEq + Display>(
    field: impl Into<String>,
    ours: &T,
    theirs: &T,
) -> Result<(), Mismatch> {
    if ours == theirs {
        return Ok(());
    }
    Err(Mismatch { field: field.into(), ours: ours.to_string(), theirs: theirs.to_string() })
}
