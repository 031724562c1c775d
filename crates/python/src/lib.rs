//! The native half of the wheel `kvferry`: thin wrappers of the facade. What Python sees of it
//! is described in `python/kvferry/_kvferry.pyi`.
//!
//! Whatever may take long lets go of the interpreter's lock, nothing here calls into Python
//! from a thread of its own, and a panic comes out as an exception.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod borrow;
mod config;
mod engine;
mod errors;
mod handoff;
mod layout;
mod plan;
mod prompt;
mod runtime;
mod scheduler;
mod worker;

use pyo3::prelude::*;

/// The native half of `kvferry`.
#[pymodule]
mod _kvferry {
    #[pymodule_export]
    use crate::borrow::Memory;
    #[pymodule_export]
    use crate::config::Config;
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::errors::{
        BugError, ConfigError, ExhaustedError, KvferryError, PeerLostError, ProtocolError,
        RetryError,
    };
    #[pymodule_export]
    use crate::handoff::{Decode, Offered, Prefill};
    #[pymodule_export]
    use crate::layout::CacheLayout;
    #[pymodule_export]
    use crate::plan::plan;
    #[pymodule_export]
    use crate::prompt::{PromptDigest, prompt_digest};
    #[pymodule_export]
    use crate::runtime::{log_to_stderr, random_u64};
    #[pymodule_export]
    use crate::scheduler::{Outcome, Scheduler};
    #[pymodule_export]
    use crate::worker::{Path, Report, Worker};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
