use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

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

/// Gets to know the peer before `deadline`, however slowly its bytes drip in.
pub(super) fn greet(
    mut socket: &TcpStream,
    mut greeting: Greeting,
    deadline: Instant,
) -> Result<Known, GreetError> {
    let meant = |greeting: &Greeting, why: io::Error| match greeting.broken_off(why.kind()) {
        Some(meant) => GreetError::from(meant),
        None => why.into(),
    };
    let mut bytes = [0; HELLO_LEN];
    loop {
        match greeting.step()? {
            // A fresh socket has room for these few bytes.
            Step::Say(word) => socket.write_all(&word).map_err(|why| meant(&greeting, why))?,
            Step::Hear(len) => {
                let heard = &mut bytes[..len];
                hear(socket, heard, deadline).map_err(|why| meant(&greeting, why))?;
                greeting.hear(heard)?;
            }
            Step::Known(known) => {
                socket.set_read_timeout(None)?;
                return Ok(*known);
            }
        }
    }
}

fn hear(mut socket: &TcpStream, bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut have = 0;
    while have < bytes.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        match socket.read(&mut bytes[have..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => have += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
