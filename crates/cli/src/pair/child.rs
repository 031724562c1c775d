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

type Asked = Arc<Mutex<BTreeMap<u64, oneshot::Sender<Value>>>>;

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
        let asked = Asked::default();
        let end = tokio::spawn(listen(lines, Arc::clone(&asked)));
        Ok(Self { stdin: stdin.into(), asked, end, _child: child })
    }

    /// Has a prompt computed. Gives the parameters that lead to its KV cache.
    pub(super) async fn prefill(&self, request: u64, tokens: u64) -> Result<Value, Failure> {
        let (reply, params) = oneshot::channel();
        lock(&self.asked).insert(request, reply);
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
            Ok(FromPrefill::Offered { request, params }) => {
                if let Some(reply) = lock(&asked).remove(&request) {
                    // Nobody to take it: the lease runs out by itself.
                    let _ = reply.send(params);
                }
            }
            Ok(FromPrefill::Finished { account }) => break Ok(account),
            Ok(other) => break Err(unexpected(other)),
            Err(why) => break Err(why),
        }
    };
    lock(&asked).clear();
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
