//! Tests of the rules of one hand-off, and of two and more workers against each other.

mod bounds;
mod codec;
mod counterparts;
mod digest;
mod early;
mod handshake;
mod idle;
mod late_samples;
mod loads;
mod orders;
mod pair;
mod params;
mod peers;
mod random;
mod reads;
mod receives;
mod reports;
mod samples;
mod scheduler;
mod sends;
mod support;
mod withdrawal;
mod world;
