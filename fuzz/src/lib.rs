//! Fuzz targets: everything that comes from outside, fed with arbitrary bytes.
//!
//! A [`Target`] is a function that takes any bytes and panics if a promise is broken. `cargo test`
//! feeds each its kept corpus (`fuzz/corpus`) and a short seeded run; `cargo xtask fuzz` runs them
//! for as long as wanted, led by coverage.
//!
//! What the bytes mean is decided by [`Bytes`]: targets begin with something legal and let the
//! input spoil it, so that it gets deep.

#![forbid(unsafe_code)]
// Nothing is compiled for unit tests, of which there are none: private modules of `transport` are
// compiled once more here, and theirs would come along.
#![cfg(not(test))]

pub mod allowance;
mod bytes;
mod config;
mod connector;
mod engines;
mod json;
mod planner;
mod shape;
pub mod short;
mod spoil;
mod strides;
mod transport;

pub use bytes::Bytes;

/// Something that takes bytes from outside.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it is called; its corpus is the folder of this name.
    pub name: &'static str,
    /// Panics if a promise is broken.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: [Target; 16] = [
    Target { name: "planner", run: planner::spoiled },
    Target { name: "layout_json", run: planner::json },
    Target { name: "config_json", run: config::config },
    Target { name: "engine_shape", run: shape::shape },
    Target { name: "strides", run: strides::strides },
    Target { name: "hello", run: transport::hello },
    Target { name: "frame", run: transport::frame },
    Target { name: "request", run: transport::request },
    Target { name: "shm_frame", run: transport::shm_frame },
    Target { name: "show", run: transport::show },
    Target { name: "codec", run: connector::codec },
    Target { name: "params", run: connector::params },
    Target { name: "handshake", run: connector::handshake },
    Target { name: "worker", run: connector::worker },
    Target { name: "scheduler", run: connector::scheduler },
    Target { name: "loads", run: connector::loads },
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
