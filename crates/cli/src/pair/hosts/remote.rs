//! The prefill engine on another host, as the decode side's parent has it.

use std::net::{IpAddr, SocketAddr};

use kv_layout::EngineShape;
use kvferry::greet::Stream;
use kvferry::{Config, FetchError};
use serde_json::Value;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::super::Role;
use super::super::errors::{failed, from_fetch_error};
use super::super::loss::FirstLoss;
use super::super::messages::Account;
use super::link::{Link, Socket};
use super::{Answer, Ask, GREETING, greet};
use crate::failure::{Code, Failure};

/// Asked for one prompt after the other.
pub(crate) struct Remote(Mutex<Link<Ask, Answer>>);

impl Remote {
    /// Introduces this side to the prefill side at `address`, for prompts of `tokens`. Gives the
    /// shape of its engine, too.
    pub(crate) async fn connect(
        address: &str,
        config: &Config,
        tokens: u64,
        first_loss: &FirstLoss,
    ) -> Result<(Self, EngineShape), Failure> {
        let stream = dial(address, config).await?;
        let mut link = Link::open(Socket::new(stream, Role::Prefill), first_loss);
        link.say(Ask::Begin { tokens })?;
        match within(address, "word of welcome", link.next()).await?? {
            Answer::Welcome { shape } => Ok((Self(Mutex::new(link)), shape)),
            other => Err(link.fail(unexpected(&other)).await),
        }
    }

    pub(crate) async fn offer(&self, request: u64, tokens: u64) -> Result<Value, Failure> {
        match self.ask(Ask::Prompt { request, tokens }).await? {
            Answer::Offered { request: of, params } if of == request => Ok(params),
            other => Err(unexpected(&other)),
        }
    }

    /// Lets it finish. Gives its account.
    pub(crate) async fn finish(self) -> Result<Account, Failure> {
        let answer = self.ask(Ask::Finish).await?;
        self.0.into_inner().close().await;
        match answer {
            Answer::Finished { account } => Ok(account),
            other => Err(unexpected(&other)),
        }
    }

    /// Says why this side ends, and gives it back.
    pub(crate) async fn give_up(self, failure: Failure) -> Failure {
        self.0.into_inner().fail(failure).await
    }

    async fn ask(&self, word: Ask) -> Result<Answer, Failure> {
        let mut link = self.0.lock().await;
        link.say(word)?;
        link.next().await
    }
}

fn unexpected(answer: &Answer) -> Failure {
    failed(format!("the prefill host said what was not asked: {answer:?}"))
}

/// A socket whose other end is a prefill side with the same secret, if any.
async fn dial(address: &str, config: &Config) -> Result<Stream, Failure> {
    let found = within(address, "address", lookup_host(address)).await?;
    let unknown = |why: std::io::Error| {
        unreachable(address, &why).hint("give --connect HOST:PORT, as the prefill side prints it")
    };
    let found: Vec<SocketAddr> = found.map_err(unknown)?.collect();
    let mut refused = unreachable(address, &"the name has no address");
    for target in found {
        match call(address, target, config).await {
            Ok(stream) => return Ok(stream),
            Err(failure) => refused = failure,
        }
    }
    Err(refused)
}

async fn call(address: &str, target: SocketAddr, config: &Config) -> Result<Stream, Failure> {
    permitted(address, target.ip(), config).map_err(|why| from_fetch_error(&why))?;
    let stream = within(address, "connection", TcpStream::connect(target)).await?;
    let not_there = |why: std::io::Error| {
        unreachable(address, &why)
            .hint("start the prefill side first; --connect takes the address that it prints")
    };
    let stream = stream.map_err(not_there)?;
    stream.set_nodelay(true).map_err(not_there)?;
    let greeting = greet::dialler(stream, host(address), config);
    let greeted = within(address, "greeting", greeting).await?;
    greeted.map_err(|why| Failure { hint: why.hint, ..unreachable(address, &why.message) })
}

/// The host of an address with a port that was looked up.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// The rule by which the ranks connect holds for their parent.
fn permitted(address: &str, found: IpAddr, config: &Config) -> Result<(), FetchError> {
    let (found, address) = (found.to_canonical(), address.to_owned());
    if config.secret.is_none() && !found.is_loopback() {
        return Err(FetchError::NotLoopback { address });
    }
    match &config.allow {
        Some(allow) if !allow.contains(found) => Err(FetchError::NotAllowed { address, found }),
        _ => Ok(()),
    }
}

async fn within<T>(address: &str, what: &str, step: impl Future<Output = T>) -> Result<T, Failure> {
    let late = |_| unreachable(address, &format!("no {what} within {} s", GREETING.as_secs()));
    timeout(GREETING, step).await.map_err(late)
}

fn unreachable(address: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::Peer, format!("cannot reach the prefill host at {address}: {why}"))
}
