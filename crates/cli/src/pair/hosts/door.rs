//! Where the prefill side waits for a decode side.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kvferry::transport::session::Trust;
use kvferry::{Config, Secret, StartError, Tls};
use serde::de::DeserializeOwned;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::super::errors::from_start_error;
use super::link::Socket;
use super::{Ask, GREETING, greet};
use crate::failure::Failure;

/// Those who have not said yet what they want; for one more the oldest is turned away.
const MAX_STRANGERS: usize = 64;

/// Takes what a caller wants from its first word.
type Begin<W, T> = fn(W) -> Result<T, Failure>;

pub(crate) struct Door {
    listener: TcpListener,
    address: SocketAddr,
    secret: Option<Arc<Secret>>,
    tls: Option<Arc<Tls>>,
}

/// A decode side that has said what it wants.
pub(crate) struct Caller {
    pub(super) socket: Socket,
    pub(super) tokens: u64,
}

impl Door {
    /// # Errors
    /// Those of the library, which the ranks would have at this address.
    pub(crate) async fn open(config: &Config) -> Result<Self, Failure> {
        Self::listen(config).await.map_err(from_start_error)
    }

    async fn listen(config: &Config) -> Result<Self, StartError> {
        let address = config.listen;
        if config.secret.is_none() && !address.ip().to_canonical().is_loopback() {
            return Err(StartError::NotLoopback { address: address.ip() });
        }
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|why| StartError::Listen { address, why })?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, secret: config.secret.clone(), tls: config.tls.clone() })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the first that is a decode side; nobody is let in after it.
    pub(crate) async fn first(self) -> Caller {
        let (socket, tokens) = self.first_to_say(PREFILL_CALLER, begun).await;
        Caller { socket, tokens }
    }

    /// Waits for the first whose first word `begin` takes, which failures then call `peer`; nobody
    /// is let in after it.
    pub(crate) async fn first_to_say<W, T>(
        self,
        peer: &'static str,
        begin: Begin<W, T>,
    ) -> (Socket, T)
    where
        W: DeserializeOwned + 'static,
        T: Send + 'static,
    {
        let trust = Trust { secret: self.secret, tls: self.tls };
        let mut greetings = JoinSet::new();
        let mut strangers = VecDeque::new();
        loop {
            tokio::select! {
                biased;
                Some(greeted) = greetings.join_next() => {
                    if let Ok(Some(caller)) = greeted {
                        return caller;
                    }
                }
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, from)) => {
                        make_room(&mut strangers);
                        let greeting = introduced(stream, from, trust.clone(), (peer, begin));
                        strangers.push_back(greetings.spawn(greeting));
                    }
                    Err(why) => {
                        // Out of descriptors, most likely: others must go before more can come.
                        tracing::warn!(%why, "cannot accept");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
    }
}

/// What failures call whoever reads from a prefill side.
const PREFILL_CALLER: &str = "decode";

fn begun(word: Ask) -> Result<u64, Failure> {
    match word {
        Ask::Begin { tokens } => Ok(tokens),
        other => Err(Failure::input(format!("it began with {other:?}"))),
    }
}

/// Whoever is silent loses its place to those who speak.
fn make_room(strangers: &mut VecDeque<AbortHandle>) {
    strangers.retain(|stranger| !stranger.is_finished());
    if strangers.len() >= MAX_STRANGERS
        && let Some(oldest) = strangers.pop_front()
    {
        oldest.abort();
    }
}

async fn introduced<W: DeserializeOwned, T>(
    stream: TcpStream,
    from: SocketAddr,
    trust: Trust,
    wanted: (&'static str, Begin<W, T>),
) -> Option<(Socket, T)> {
    match timeout(GREETING, introduce(stream, trust, wanted)).await {
        Ok(Ok(caller)) => Some(caller),
        Ok(Err(why)) => {
            tracing::warn!(%from, why = %why.message, "a stranger was turned away");
            None
        }
        Err(_) => {
            tracing::warn!(%from, "a stranger did not say in time what it wants");
            None
        }
    }
}

async fn introduce<W: DeserializeOwned, T>(
    stream: TcpStream,
    trust: Trust,
    (peer, begin): (&'static str, Begin<W, T>),
) -> Result<(Socket, T), Failure> {
    stream.set_nodelay(true).map_err(Failure::input)?;
    let stream = greet::listener(stream, trust.secret, trust.tls.as_deref()).await?;
    let mut socket = Socket::new(stream, peer);
    let word = begin(socket.ear.word().await?)?;
    Ok((socket, word))
}
