//! The prefill worker's process, as its parent sees it.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Setup;
use super::messages::{Account, FromPrefill, ToPrefill};
use crate::failure::{Code, Failure};

/// A process that is gone is seen to be gone within this time.
const POST_MORTEM: Duration = Duration::from_secs(1);

/// Who waits for the parameters of which request; nobody any more once the worker has ended, so
/// that whoever asks then does not wait for ever.
#[derive(Clone)]
struct Asked(Arc<Mutex<Option<Waiting>>>);

type Waiting = BTreeMap<u64, oneshot::Sender<Value>>;

impl Asked {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(Waiting::new()))))
    }

    fn ask(&self, request: u64) -> Result<oneshot::Receiver<Value>, Failure> {
        let (reply, params) = oneshot::channel();
        let mut waiting = lock(&self.0);
        waiting.as_mut().ok_or_else(|| lost("it ended"))?.insert(request, reply);
        Ok(params)
    }

    fn answer(&self, request: u64, params: Value) {
        let reply = lock(&self.0).as_mut().and_then(|waiting| waiting.remove(&request));
        // Nobody to take it: the lease runs out by itself.
        let _ = reply.map(|reply| reply.send(params));
    }

    fn close(&self) {
        lock(&self.0).take();
    }
}

/// A running prefill worker; it dies with this value.
pub(super) struct PrefillProcess {
    stdin: tokio::sync::Mutex<ChildStdin>,
    asked: Asked,
    end: tokio::task::JoinHandle<Result<Account, Failure>>,
    _child: Child,
}

impl PrefillProcess {
    /// Starts the process and waits until it listens.
    pub(super) async fn start(setup: &Setup) -> Result<Self, Failure> {
        let mut child = spawn(setup).map_err(lost)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(lost("it has no pipes"));
        };
        let mut lines = BufReader::new(stdout).lines();
        match next(&mut lines).await? {
            FromPrefill::Ready => {}
            other => return Err(unexpected(other)),
        }
        let asked = Asked::new();
        let end = tokio::spawn(listen(lines, asked.clone()));
        Ok(Self { stdin: stdin.into(), asked, end, _child: child })
    }

    /// Has a prompt computed. Gives the parameters that lead to its KV cache.
    pub(super) async fn prefill(&self, request: u64, tokens: u64) -> Result<Value, Failure> {
        let params = self.asked.ask(request)?;
        self.say(&ToPrefill::Prefill { request, tokens }).await?;
        params.await.map_err(|_| lost("it ended"))
    }

    /// Lets it end. Gives its last account, or why it failed.
    pub(super) async fn finish(self) -> Result<Account, Failure> {
        let said = self.say(&ToPrefill::Finish).await;
        // What it said itself explains more than a broken pipe.
        let account = self.end.await.map_err(lost)??;
        said.map(|()| account)
    }

    /// Why it ended before it was told to, if it did.
    pub(super) async fn post_mortem(self) -> Option<Failure> {
        timeout(POST_MORTEM, self.end).await.ok()?.ok()?.err()
    }

    async fn say(&self, message: &ToPrefill) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(message).map_err(lost)?;
        line.push(b'\n');
        self.stdin.lock().await.write_all(&line).await.map_err(lost)
    }
}

fn spawn(setup: &Setup) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg("prefill-worker")
        .arg(&setup.model.model)
        .args(["--block-size", &setup.model.block_size.to_string()])
        .args(["--pool", &setup.pool.to_string()])
        .args(["--listen", &setup.link.listen.to_string()])
        .args(["--seed", &setup.link.seed.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// Hands parameters to those who asked for them, until the last words.
async fn listen(
    mut lines: Lines<BufReader<ChildStdout>>,
    asked: Asked,
) -> Result<Account, Failure> {
    let end = loop {
        match next(&mut lines).await {
            Ok(FromPrefill::Offered { request, params }) => asked.answer(request, params),
            Ok(FromPrefill::Finished { account }) => break Ok(account),
            Ok(other) => break Err(unexpected(other)),
            Err(why) => break Err(why),
        }
    };
    asked.close();
    end
}

async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<FromPrefill, Failure> {
    let line = lines.next_line().await.map_err(lost)?;
    let line = line.ok_or_else(|| lost("it ended without a word"))?;
    serde_json::from_str(&line).map_err(lost)
}

fn unexpected(message: FromPrefill) -> Failure {
    match message {
        FromPrefill::Failed { message, hint, exit_code } => {
            Failure { code: Code::from_number(exit_code), message, hint }
        }
        other => lost(format!("it said {other:?}")),
    }
}

fn lost(why: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Peer, format!("the prefill worker is lost: {why}"))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_asks_a_worker_that_has_ended_is_told() {
        let asked = Asked::new();
        let (answered, waiting) = (asked.ask(1).unwrap(), asked.ask(2).unwrap());
        asked.answer(1, Value::from("params"));
        assert_eq!(answered.await.unwrap(), "params");
        asked.close();
        assert!(waiting.await.is_err());
        let late = asked.ask(3).unwrap_err();
        assert_eq!(
            (late.code, late.message.as_str()),
            (Code::Peer, "the prefill worker is lost: it ended")
        );
        asked.answer(2, Value::Null);
    }
}
