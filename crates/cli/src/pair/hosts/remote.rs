//! The prefill engine on another host, as the decode side's parent has it.

use kv_layout::EngineShape;
use kvferry::Config;
use serde_json::Value;
use tokio::sync::Mutex;

use super::super::errors::failed;
use super::super::loss::FirstLoss;
use super::super::messages::Account;
use super::link::{Link, Socket};
use super::{Answer, Ask, dial};
use crate::failure::Failure;

/// What failures call the other side.
const PEER: &str = "prefill";

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
        let (stream, _) = dial::dial(address, PEER, config).await?;
        let mut link = Link::open(Socket::new(stream, PEER), first_loss);
        link.say(Ask::Begin { tokens })?;
        match dial::within((address, PEER), "word of welcome", link.next()).await?? {
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
