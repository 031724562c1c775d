use std::io;
use std::time::Instant;

use crate::session::{Greeting, GreetingError, HELLO_LEN, Known, Step};

/// Why a socket did not get to know its peer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    #[error("the other side is not what it should be: {0}")]
    Unexpected(&'static str),
}

/// A fresh socket, whose first words are said and heard by a thread that waits for them.
pub(crate) trait Line {
    /// Says all of it; a fresh socket has room for these few bytes.
    fn say(&self, bytes: &[u8]) -> io::Result<()>;

    /// Hears at least one byte before `deadline`; 0 if the peer has hung up.
    fn hear(&self, bytes: &mut [u8], deadline: Instant) -> io::Result<usize>;
}

/// Gets to know the peer before `deadline`, however slowly its bytes drip in.
pub(crate) fn greet(
    line: &impl Line,
    mut greeting: Greeting,
    deadline: Instant,
) -> Result<Known, GreetError> {
    let mut bytes = [0; HELLO_LEN];
    loop {
        match greeting.step()? {
            Step::Say(word) => {
                if let Err(why) = line.say(&word) {
                    // Whoever does not want to hear it may have said why.
                    let why = hear_all(line, &mut bytes, deadline).err().unwrap_or(why);
                    return Err(meant(&greeting, why, &bytes));
                }
            }
            Step::Hear(len) => {
                let heard = &mut bytes[..len];
                let hearing = hear_all(line, heard, deadline);
                hearing.map_err(|why| meant(&greeting, why, heard))?;
                greeting.hear(heard)?;
            }
            Step::Known(known) => return Ok(*known),
        }
    }
}

/// What the end of a greeting says about the peer, where it says something.
pub(crate) fn meant(greeting: &Greeting, why: io::Error, heard: &[u8]) -> GreetError {
    match greeting.broken_off(&why, heard) {
        Some(meant) => meant.into(),
        None => why.into(),
    }
}

fn hear_all(line: &impl Line, bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut have = 0;
    while have < bytes.len() {
        if deadline.saturating_duration_since(Instant::now()).is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match line.hear(&mut bytes[have..], deadline) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => have += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
