//! What peers, routers and drivers say to the hand-off.

mod loads;
mod scheduler;
mod texts;
mod worker;

pub use loads::loads;
pub use scheduler::scheduler;
pub use texts::{codec, handshake, params};
pub use worker::worker;
