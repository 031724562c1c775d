use std::io::{self, Read, Write};
use std::time::Instant;

use rustls::Connection;

use super::seal::Seal;
use super::stream::Stream;
pub(super) use crate::greet::GreetError;
use crate::greet::{self, Line, meant};
use crate::session::{Greeting, Known};

/// Gets to know the peer before `deadline`, inside a TLS session if one is to be begun.
pub(super) fn greet(
    stream: &Stream,
    tls: Option<Result<Connection, rustls::Error>>,
    mut greeting: Greeting,
    deadline: Instant,
) -> Result<Known, GreetError> {
    if let Some(tls) = tls {
        let tls = tls.map_err(io::Error::other)?;
        let seal = Seal::open(stream.socket(), tls, deadline);
        let seal = seal.map_err(|why| meant(&greeting, why, &[]))?;
        greeting = greeting.inside(stream.sealed(seal).binding()?);
    }
    let known = greet::greet(stream, greeting, deadline)?;
    stream.socket().set_read_timeout(None)?;
    Ok(known)
}

impl Line for Stream {
    fn say(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stream = self;
        stream.write_all(bytes)
    }

    fn hear(&self, bytes: &mut [u8], deadline: Instant) -> io::Result<usize> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket().set_read_timeout(Some(left))?;
        let mut stream = self;
        stream.read(bytes)
    }
}
