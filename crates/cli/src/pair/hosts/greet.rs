//! The greeting of two parents: that of agents.

use std::sync::Arc;

use kvferry::greet::{self, GreetError, Stream};
use kvferry::transport::AgentId;
use kvferry::transport::session::{self, Channel, Greeting, GreetingError, Hello};
use kvferry::{Config, Secret, Tls};
use tokio::net::TcpStream;

use super::super::Role;
use super::super::errors::{SAME_SECRET, same_authority};
use crate::failure::{Code, Failure};

/// Lets the decode side's parent in that has connected.
pub(super) async fn listener(
    socket: TcpStream,
    secret: Option<Arc<Secret>>,
    tls: Option<&Tls>,
) -> Result<Stream, Failure> {
    let greeting = Greeting::listener(hello(Role::Prefill), secret);
    known(greet::accepted(socket, tls, greeting).await)
}

/// Introduces the decode side's parent to the one at `host`.
pub(super) async fn dialler(
    socket: TcpStream,
    host: &str,
    config: &Config,
) -> Result<Stream, Failure> {
    let greeting = Greeting::dialler(hello(Role::Decode), config.secret.clone());
    known(greet::dialled(socket, host, config.tls.as_deref(), greeting).await)
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

fn known(greeted: Result<(Stream, Hello), GreetError>) -> Result<Stream, Failure> {
    match greeted {
        Ok((stream, _)) => Ok(stream),
        Err(GreetError::Greeting(why)) => Err(refused(&why)),
        Err(why) => Err(Failure::new(Code::Peer, why)),
    }
}

fn refused(why: &GreetingError) -> Failure {
    use GreetingError::{NotTaken, OnlyOurs, OnlyTheirs, Proof};
    let failure = Failure::new(Code::Peer, why);
    match (why, same_authority(why)) {
        (OnlyTheirs | OnlyOurs | Proof | NotTaken, _) => failure.hint(SAME_SECRET),
        (_, Some(hint)) => failure.hint(hint),
        _ => failure,
    }
}
