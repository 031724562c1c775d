//! The first words on a socket of tokio's, and the stream that they lead to.

mod stream;

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use transport::session::{Greeting, GreetingError, HELLO_LEN, Hello, Step, Tls, binding};

pub use stream::{Reading, Stream, Writing};

/// Why a socket did not get to know its peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GreetError {
    /// The network's answer.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer is not who it should be, or does not prove that it is.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
}

/// Greets a peer that was connected to under the name or address `host`, which its certificate
/// must be for.
///
/// # Errors
/// [`GreetError`]: hang up.
pub async fn dialled(
    socket: TcpStream,
    host: &str,
    tls: Option<&Tls>,
    greeting: Greeting,
) -> Result<(Stream, Hello), GreetError> {
    let Some(tls) = tls else { return greet(Stream::Plain(socket), greeting).await };
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|why| GreetingError::Tls { why: why.to_string() })?;
    let wrapped = TlsConnector::from(tls.client()).connect(name, socket).await;
    let wrapped = wrapped.map_err(|why| meant(&greeting, why, &[]))?;
    let session = binding(wrapped.get_ref().1).map_err(io::Error::other)?;
    greet(Stream::Tls(Box::new(wrapped.into())), greeting.inside(session)).await
}

/// Greets a peer that has connected.
///
/// # Errors
/// [`GreetError`]: hang up.
pub async fn accepted(
    socket: TcpStream,
    tls: Option<&Tls>,
    greeting: Greeting,
) -> Result<(Stream, Hello), GreetError> {
    let Some(tls) = tls else { return greet(Stream::Plain(socket), greeting).await };
    let wrapped = TlsAcceptor::from(tls.server()).accept(socket).await;
    let wrapped = wrapped.map_err(|why| meant(&greeting, why, &[]))?;
    let session = binding(wrapped.get_ref().1).map_err(io::Error::other)?;
    greet(Stream::Tls(Box::new(wrapped.into())), greeting.inside(session)).await
}

async fn greet(mut stream: Stream, mut greeting: Greeting) -> Result<(Stream, Hello), GreetError> {
    let mut bytes = [0; HELLO_LEN];
    loop {
        match greeting.step()? {
            Step::Say(word) => {
                if let Err(why) = say(&mut stream, &word).await {
                    // Whoever does not want to hear it may have said why.
                    let why = stream.read_exact(&mut bytes).await.err().unwrap_or(why);
                    return Err(meant(&greeting, why, &bytes));
                }
            }
            Step::Hear(len) => {
                let heard = &mut bytes[..len];
                let hearing = stream.read_exact(heard).await;
                hearing.map_err(|why| meant(&greeting, why, heard))?;
                greeting.hear(heard)?;
            }
            Step::Known(known) => {
                say(&mut stream, &known.last_word).await?;
                return Ok((stream, known.hello));
            }
        }
    }
}

/// What was written may wait in the TLS session until it is flushed.
async fn say(stream: &mut Stream, word: &[u8]) -> io::Result<()> {
    stream.write_all(word).await?;
    stream.flush().await
}

fn meant(greeting: &Greeting, why: io::Error, heard: &[u8]) -> GreetError {
    match greeting.broken_off(&why, heard) {
        Some(meant) => meant.into(),
        None => why.into(),
    }
}
