//! Moves registered bytes between processes.

#![deny(unsafe_code)]

mod endpoint;
mod error;
#[allow(unsafe_code)]
pub mod memory;

pub use endpoint::{
    AgentId, BoundRegion, Capabilities, Card, Endpoint, Event, Fence, GrantToken, Outcome, PeerId,
    Registration, Transfer, TransferId,
};
pub use error::{
    Class, ConnectError, GrantError, RegisterError, SubmitError, SubmitErrorKind, TransferError,
};
pub use memory::Memory;
