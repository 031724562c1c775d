//! Hands the KV cache of a request from a prefill engine to a decode engine.
//!
//! [`Prefill`] keeps the blocks of finished prefills until a decode engine has read them;
//! [`Decode`] claims them, reads exactly what the next token can still see, and says when the
//! bytes count. Both run on tokio; every rule of the hand-off lives in [`connector`], every
//! rule of what to move in [`kv_layout`], and every byte goes through a [`transport`] endpoint.
//!
//! A hand-off, from the engine's point of view:
//!
//! 1. P: [`Prefill::offer`] gives parameters, plain JSON that any router can carry to D.
//! 2. D: [`Decode::claim`] asks P for the blocks, while the request may still be queued.
//! 3. D: allocates blocks and calls [`Offered::receive`]; when that returns, the bytes are
//!    there and P has confirmed that they were intact while they were read.
//! 4. P: [`Freed::next`] names the request whose blocks may be reused.
//!
//! Peers prove to each other that they have the same [`Secret`]. Without one, only loopback
//! addresses are listened on and connected to. With [`Tls`], they show each other certificates as
//! well, and everything between them is encrypted.

#![forbid(unsafe_code)]

mod agent;
mod allow;
mod config;
mod control;
mod decode;
mod driver;
mod engine;
mod error;
pub mod greet;
mod prefill;
mod providers;
mod reach;
mod trace;

pub use agent::{Path, random_u64};
pub use allow::{AllowList, AllowListError};
pub use config::Config;
pub use connector::{Class, Counts, PromptDigest, PromptIdentity};
pub use decode::{Decode, Offered};
pub use driver::{Load, Part, Report, WorkerDriver};
pub use engine::Engine;
pub use error::{FetchError, OfferError, StartError};
pub use prefill::{Freed, FreedLeases, FreedRequest, Prefill, PrefillRank};
pub use providers::{Provider, ProviderError};
pub use transport::session::{Secret, SecretError, Tls, TlsError};

pub use {connector, cuda_mem, kv_layout, strided, transport};
