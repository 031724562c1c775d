//! What peers, routers and drivers say to the hand-off.

mod scheduler;
mod texts;
mod worker;

pub use scheduler::scheduler;
pub use texts::{codec, handshake, params};
pub use worker::worker;
