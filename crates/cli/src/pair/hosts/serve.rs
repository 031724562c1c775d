//! What the prefill side's parent does for a decode side.

use super::super::loss::FirstLoss;
use super::super::prefill::Prefill;
use super::door::Caller;
use super::link::Link;
use super::{Answer, Ask, Served};
use crate::failure::{Code, Failure};
use crate::output;

/// Serves a decode side until it is done, and accounts. Prompts have `most` tokens at most, for
/// which the prefill engine has its pools.
pub(crate) async fn serve(
    prefill: Prefill,
    caller: Caller,
    most: u64,
    first_loss: &FirstLoss,
) -> Result<Served, Failure> {
    let Caller { socket, tokens } = caller;
    let mut link = Link::open(socket, first_loss);
    let served = tokio::select! {
        served = answer(&mut link, &prefill, tokens, most) => served,
        loss = first_loss.known() => Err(loss),
    };
    match served {
        Ok(requests) => match prefill.finish().await {
            Ok(account) => {
                link.say(Answer::Finished { account })?;
                link.close().await;
                Ok(Served { requests, account })
            }
            Err(failure) => Err(link.fail(failure).await),
        },
        Err(failure) => {
            let failure = first_loss.behind(failure, async { None }).await;
            // What the other side calls a lost peer may be a rank that hangs here.
            let hangs = match failure.code {
                Code::Peer => prefill.hangs().await,
                _ => None,
            };
            Err(link.fail(hangs.unwrap_or(failure)).await)
        }
    }
}

/// Answers until nothing more is asked for. Gives the number of prompts.
async fn answer(
    link: &mut Link<Answer, Ask>,
    prefill: &Prefill,
    asked: u64,
    most: u64,
) -> Result<u64, Failure> {
    check(asked, most)?;
    link.say(Answer::Welcome { shape: prefill.shape().engine })?;
    let mut requests = 0;
    loop {
        match link.next().await? {
            Ask::Prompt { request, tokens } => {
                check(tokens, most)?;
                let params = prefill.offer(request, tokens).await?;
                link.say(Answer::Offered { request, params })?;
                requests += 1;
            }
            Ask::Finish => return Ok(requests),
            Ask::Begin { .. } => {
                let why = "the decode host said what was not asked: it began twice";
                return Err(Failure::new(Code::Peer, why));
            }
        }
    }
}

/// Before anything is computed with a number from outside.
fn check(asked: u64, most: u64) -> Result<(), Failure> {
    if (1..=most).contains(&asked) {
        return Ok(());
    }
    let (asked, most) = (output::count(asked), output::count(most));
    let why =
        format!("prompts of {asked} tokens: the prefill engine was started with --tokens {most}");
    Err(Failure::input(why)
        .hint("give the prefill side as many --tokens as the decode side, or more"))
}
