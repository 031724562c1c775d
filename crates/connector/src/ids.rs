use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::class::Class;
use crate::limits::MAX_REQUEST_ID;

/// One life of an engine (a scheduler and its workers): 64 random bits drawn at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EngineEpoch(pub u64);

/// One life of an agent (one worker): 64 random bits drawn at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AgentEpoch(pub u64);

/// Makes a lease unguessable: 64 random bits drawn for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Nonce(pub u64);

/// Permission to read the blocks of one lease, for one reader: 64 bits that nobody can guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReadToken(pub u64);

/// A worker's place within its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rank(pub u32);

/// A running worker of another engine, as the handshake proved it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// The engine that it belongs to.
    pub engine: EngineEpoch,
    /// The worker itself.
    pub agent: AgentEpoch,
}

/// An engine's own name for a request: 1 to 256 bytes of UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(Arc<str>);

/// A request id that is empty or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a request id has 1 to {MAX_REQUEST_ID} bytes, not {bytes}")]
pub struct RequestIdError {
    /// Its length.
    pub bytes: usize,
}

impl RequestIdError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        Class::Protocol
    }
}

impl RequestId {
    /// Takes a name of 1 to 256 bytes.
    ///
    /// # Errors
    /// Any other length.
    pub fn new(name: &str) -> Result<Self, RequestIdError> {
        match name.len() {
            1..=MAX_REQUEST_ID => Ok(Self(name.into())),
            bytes => Err(RequestIdError { bytes }),
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(RequestIdVisitor)
    }
}

/// Looks at the length while the bytes are still in the frame: nothing is copied before.
struct RequestIdVisitor;

impl de::Visitor<'_> for RequestIdVisitor {
    type Value = RequestId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a request id of 1 to {MAX_REQUEST_ID} bytes")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<RequestId, E> {
        RequestId::new(name).map_err(E::custom)
    }
}

/// P's promise to keep the blocks of one finished prefill.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId {
    /// The engine that prefilled.
    pub engine: EngineEpoch,
    /// Its name for the request.
    pub request: RequestId,
    /// Tells this lease from every other of the same name.
    pub nonce: Nonce,
}

/// One decode engine's word that it will read a lease. All its ranks share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimId {
    /// What is claimed.
    pub lease: LeaseId,
    /// The engine that will decode.
    pub engine: EngineEpoch,
    /// Its name for the request.
    pub request: RequestId,
}
