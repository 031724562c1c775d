use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use crate::session::{HELLO_LEN, Hello, HelloError};

/// Why an exchange of hellos failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum GreetError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Hello(#[from] HelloError),
    #[error("the other side is not what it should be: {0}")]
    Unexpected(&'static str),
}

/// Says hello.
pub(super) fn say(mut socket: &TcpStream, hello: &Hello) -> io::Result<()> {
    socket.write_all(&hello.encode())
}

/// Hears a hello before `deadline`, however slowly its bytes drip in.
pub(super) fn hear(mut socket: &TcpStream, deadline: Instant) -> Result<Hello, GreetError> {
    let mut bytes = [0; HELLO_LEN];
    let mut have = 0;
    while have < HELLO_LEN {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        socket.set_read_timeout(Some(left))?;
        match socket.read(&mut bytes[have..]) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(len) => have += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    socket.set_read_timeout(None)?;
    Ok(Hello::decode(&bytes)?)
}
