use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use socket2::{Domain, SockRef, Socket, Type};

use super::TcpConfig;
use super::greet::{self, GreetError};
use super::link::Link;
use super::stream::Stream;
use crate::session::{Channel, Greeting, Hello, Role, VERSIONS};
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
) -> Result<Vec<Arc<Stream>>, TransferError> {
    let failed = |why: GreetError| TransferError::Connect {
        address: target.address.to_string(),
        why: why.to_string(),
    };
    let deadline = Instant::now() + config.hello_timeout;
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|why| failed(io::Error::other(why).into()))?;
    (0..config.streams)
        .map(|stream| {
            let socket = socket(target.address).map_err(|why| failed(why.into()))?;
            link.add(Arc::clone(&socket))?;
            let hello = hello(config, stream, random);
            let greeting = Greeting::dialler(hello, config.trust.secret.clone());
            introduce(&socket, config, greeting, target, deadline).map_err(failed)?;
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
        proves: false,
    }
}

/// A socket that is not connected yet, so that its link can end it while it connects.
fn socket(address: SocketAddr) -> io::Result<Arc<Stream>> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    Ok(Arc::new(Stream::new(socket.into())))
}

fn introduce(
    stream: &Stream,
    config: &TcpConfig,
    greeting: Greeting,
    target: Target,
    deadline: Instant,
) -> Result<(), GreetError> {
    let left = deadline.saturating_duration_since(Instant::now());
    SockRef::from(stream.socket()).connect_timeout(&target.address.into(), left)?;
    stream.socket().set_nodelay(true)?;
    let tls = config.trust.tls.as_ref().map(|tls| tls.to(target.address.ip()));
    let theirs = greet::greet(stream, tls, greeting, deadline)?.hello;
    if theirs.agent != target.agent {
        return Err(GreetError::Unexpected("another agent answers there"));
    }
    Ok(())
}
