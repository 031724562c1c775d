//! The greeting of two parents: that of agents, on a socket of tokio's.

use std::sync::Arc;

use kvferry::Secret;
use kvferry::transport::AgentId;
use kvferry::transport::session::{self, Channel, Greeting, GreetingError, HELLO_LEN, Hello, Step};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::Role;
use super::super::errors::SAME_SECRET;
use crate::failure::{Code, Failure};

/// Lets the decode side's parent in that has connected.
pub(super) async fn listener(
    stream: &mut TcpStream,
    secret: Option<Arc<Secret>>,
) -> Result<(), Failure> {
    greet(stream, Greeting::listener(hello(Role::Prefill), secret)).await
}

/// Introduces the decode side's parent.
pub(super) async fn dialler(
    stream: &mut TcpStream,
    secret: Option<Arc<Secret>>,
) -> Result<(), Failure> {
    greet(stream, Greeting::dialler(hello(Role::Decode), secret)).await
}

/// A parent is no agent: nobody else has its numbers.
fn hello(role: Role) -> Hello {
    Hello {
        versions: session::VERSIONS,
        role: match role {
            Role::Prefill => session::Role::Prefill,
            Role::Decode => session::Role::Decode,
        },
        channel: Channel::Control,
        stream: 0,
        streams: 1,
        engine: rand::random(),
        agent: AgentId(rand::random()),
        random: rand::random(),
        proves: false,
    }
}

async fn greet(stream: &mut TcpStream, mut greeting: Greeting) -> Result<(), Failure> {
    let mut bytes = [0; HELLO_LEN];
    loop {
        let done = match greeting.step().map_err(refused)? {
            Step::Say(word) => stream.write_all(&word).await,
            Step::Hear(len) => match stream.read_exact(&mut bytes[..len]).await {
                Ok(_) => {
                    greeting.hear(&bytes[..len]).map_err(refused)?;
                    Ok(())
                }
                Err(why) => Err(why),
            },
            Step::Known(known) => {
                return stream.write_all(&known.last_word).await.map_err(lost);
            }
        };
        done.map_err(|why| greeting.broken_off(why.kind()).map_or_else(|| lost(why), refused))?;
    }
}

fn refused(why: GreetingError) -> Failure {
    use GreetingError::{NotTaken, OnlyOurs, OnlyTheirs, Proof};
    let failure = Failure::new(Code::Peer, &why);
    match why {
        OnlyTheirs | OnlyOurs | Proof | NotTaken => failure.hint(SAME_SECRET),
        _ => failure,
    }
}

fn lost(why: std::io::Error) -> Failure {
    Failure::new(Code::Peer, why)
}
