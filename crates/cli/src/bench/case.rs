//! One way to move the blocks of a workload.

use serde::{Deserialize, Serialize};

use super::usage::Taken;
use crate::failure::Failure;

/// What is compared with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Bytes that cross sockets.
    Tcp,
    /// Bytes that the kernel copies out of another process.
    Process,
    /// Bytes that are copied from memory to memory.
    Memory,
}

pub(super) trait Case {
    fn name(&self) -> &str;

    fn kind(&self) -> Kind;

    /// Whether it is one of the limits that providers are measured against.
    fn is_limit(&self) -> bool;

    /// Overwrites the target blocks.
    fn poison(&mut self);

    /// Moves all blocks once.
    fn run(&mut self) -> Result<Taken, Failure>;

    /// Bytes of the target blocks that are not what they should be.
    fn wrong_bytes(&self) -> u64;
}
