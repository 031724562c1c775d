use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use super::TcpConfig;
use super::greet::{self, GreetError};
use super::link::Link;
use crate::session::{Channel, Hello, Role, VERSIONS};
use crate::{AgentId, TransferError};

/// Where a source listens, and who must answer.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) agent: AgentId,
}

/// Connects all streams of a connection, one after the other.
pub(super) fn dial(
    target: Target,
    config: &TcpConfig,
    link: &Link,
) -> Result<Vec<Arc<TcpStream>>, TransferError> {
    let failed = |why: GreetError| TransferError::Connect {
        address: target.address.to_string(),
        why: why.to_string(),
    };
    let deadline = Instant::now() + config.hello_timeout;
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|why| failed(io::Error::other(why).into()))?;
    (0..config.streams)
        .map(|stream| {
            let left = deadline.saturating_duration_since(Instant::now());
            let socket = TcpStream::connect_timeout(&target.address, left);
            let socket = Arc::new(socket.map_err(|why| failed(why.into()))?);
            link.add(Arc::clone(&socket))?;
            let hello = hello(config, stream, random);
            introduce(&socket, &hello, target.agent, deadline).map_err(failed)?;
            Ok(socket)
        })
        .collect()
}

fn hello(config: &TcpConfig, stream: u16, random: [u8; 16]) -> Hello {
    Hello {
        versions: VERSIONS,
        role: Role::Decode,
        channel: Channel::Data,
        stream,
        streams: config.streams,
        engine: config.engine,
        agent: config.agent,
        random,
    }
}

fn introduce(
    socket: &TcpStream,
    own: &Hello,
    agent: AgentId,
    deadline: Instant,
) -> Result<(), GreetError> {
    socket.set_nodelay(true)?;
    greet::say(socket, own)?;
    let theirs = greet::hear(socket, deadline)?;
    theirs.agree(&VERSIONS)?;
    if theirs.role != Role::Prefill || theirs.channel != Channel::Data {
        return Err(GreetError::Unexpected("not a source of data"));
    }
    if theirs.agent != agent {
        return Err(GreetError::Unexpected("another agent answers there"));
    }
    Ok(())
}
