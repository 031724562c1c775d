use std::io::{self, Read, Write};
use std::time::Instant;

use rustls::Connection;

use super::seal::Seal;
use super::stream::Stream;
use crate::session::{Greeting, GreetingError, HELLO_LEN, Known, Step};

/// Why a socket did not get to know its peer.
#[derive(Debug, thiserror::Error)]
pub(super) enum GreetError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    #[error("the other side is not what it should be: {0}")]
    Unexpected(&'static str),
}

/// Gets to know the peer before `deadline`, however slowly its bytes drip in, inside a TLS
/// session if one is to be begun.
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
    let (mut bytes, mut writer) = ([0; HELLO_LEN], stream);
    loop {
        match greeting.step()? {
            // A fresh socket has room for these few bytes.
            Step::Say(word) => {
                if let Err(why) = writer.write_all(&word) {
                    // Whoever does not want to hear it may have said why.
                    let why = hear(stream, &mut bytes, deadline).err().unwrap_or(why);
                    return Err(meant(&greeting, why, &bytes));
                }
            }
            Step::Hear(len) => {
                let heard = &mut bytes[..len];
                let hearing = hear(stream, heard, deadline);
                hearing.map_err(|why| meant(&greeting, why, heard))?;
                greeting.hear(heard)?;
            }
            Step::Known(known) => {
                stream.socket().set_read_timeout(None)?;
                return Ok(*known);
            }
        }
    }
}

fn meant(greeting: &Greeting, why: io::Error, heard: &[u8]) -> GreetError {
    match greeting.broken_off(&why, heard) {
        Some(meant) => meant.into(),
        None => why.into(),
    }
}

fn hear(mut stream: &Stream, bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut have = 0;
    while have < bytes.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.socket().set_read_timeout(Some(left))?;
        match stream.read(&mut bytes[have..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => have += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
