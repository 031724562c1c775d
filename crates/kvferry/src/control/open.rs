//! From a fresh socket to a known peer.

use std::net::SocketAddr;

use connector::AgentEpoch;
use connector::handshake::{Handshake, HandshakeError, MAX_BODY, compatible};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use transport::session::{Greeting, Hello, Tls};

use super::{ControlError, HANDSHAKE, Inbound, Outbound};
use crate::greet::{Stream, accepted, dialled};

/// A control channel whose other end is known.
pub(crate) struct Opened {
    pub(crate) theirs: Handshake,
    /// Where it was reached or came from.
    pub(crate) at: SocketAddr,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
}

/// What a dialled peer turned out to be.
pub(crate) enum Dialled<K> {
    /// A peer to which there is a channel already. It was left before it knew this one.
    Known(K),
    Opened(Box<Opened>),
}

/// Opens a channel as the side that connected to `host`, unless the peer is known.
pub(crate) async fn dial<K>(
    socket: TcpStream,
    (host, tls): (&str, Option<&Tls>),
    greeting: Greeting,
    ours: &Handshake,
    known: impl Fn(AgentEpoch) -> Option<K>,
) -> Result<Dialled<K>, ControlError> {
    within(async {
        socket.set_nodelay(true)?;
        let (mut stream, hello) = dialled(socket, host, tls, greeting).await?;
        if let Some(known) = known(AgentEpoch(hello.agent.0)) {
            return Ok(Dialled::Known(known));
        }
        write_body(&mut stream, ours).await?;
        let theirs = read_body(&mut stream).await?;
        same_peer(&hello, &theirs)?;
        Ok(Dialled::Opened(Box::new(opened(stream, theirs)?)))
    })
    .await
}

/// Opens a channel as the side that was connected to. Says nothing before a proper hello.
pub(crate) async fn accept(
    socket: TcpStream,
    tls: Option<&Tls>,
    greeting: Greeting,
    ours: &Handshake,
) -> Result<Opened, ControlError> {
    within(async {
        socket.set_nodelay(true)?;
        let (mut stream, hello) = accepted(socket, tls, greeting).await?;
        let theirs = read_body(&mut stream).await?;
        same_peer(&hello, &theirs)?;
        // Also to a peer that does not match: it can then say why on its side.
        write_body(&mut stream, ours).await?;
        compatible(ours, &theirs)?;
        opened(stream, theirs)
    })
    .await
}

async fn within<T>(
    opening: impl Future<Output = Result<T, ControlError>>,
) -> Result<T, ControlError> {
    timeout(HANDSHAKE, opening).await.unwrap_or(Err(ControlError::Slow))
}

/// What has proved the hello's identity must prove that of the body.
fn same_peer(hello: &Hello, body: &Handshake) -> Result<(), ControlError> {
    let named = [("engine", hello.engine, body.engine.0), ("agent", hello.agent.0, body.agent.0)];
    match named.into_iter().find(|(_, hello, body)| hello != body) {
        Some((what, hello, body)) => Err(ControlError::Identity { what, hello, body }),
        None => Ok(()),
    }
}

/// A length of 32 bits, little-endian, then JSON.
async fn write_body(stream: &mut Stream, ours: &Handshake) -> Result<(), ControlError> {
    let body = ours.to_json()?;
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    stream.write_u32_le(length).await?;
    stream.write_all(&body).await?;
    stream.flush().await?;
    Ok(())
}

async fn read_body(stream: &mut Stream) -> Result<Handshake, ControlError> {
    let count = usize::try_from(stream.read_u32_le().await?).unwrap_or(usize::MAX);
    if count > MAX_BODY {
        return Err(HandshakeError::TooMany { what: "bytes", count, limit: MAX_BODY }.into());
    }
    let mut body = vec![0; count];
    stream.read_exact(&mut body).await?;
    Ok(Handshake::from_json(&body)?)
}

fn opened(stream: Stream, theirs: Handshake) -> Result<Opened, ControlError> {
    let at = stream.peer_addr()?;
    let (read, write) = stream.into_split();
    Ok(Opened { theirs, at, inbound: Inbound::new(read), outbound: Outbound::new(write) })
}
