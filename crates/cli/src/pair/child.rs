//! A worker's process, as its parent sees it.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Role;
use super::loss::FirstLoss;
use super::messages::{Account, FromWorker, ToWorker};
use crate::failure::{Code, Failure};

/// A worker says every now and then that it runs, see [`BEAT`](super::worker::BEAT): one that
/// says nothing for this long hangs.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

/// One that is asked whether it runs, and does, says so within this time.
const PING: Duration = Duration::from_secs(5);

/// The answer of one worker to what was asked of it for a request.
pub(super) type Answer = Result<FromWorker, Failure>;

/// Who waits for the answer about which request; nobody any more once the worker has ended, so
/// that whoever asks then does not wait for ever.
#[derive(Clone)]
struct Asked(Arc<Mutex<Option<Waiting>>>);

type Waiting = BTreeMap<u64, mpsc::UnboundedSender<Answer>>;

impl Asked {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(Waiting::new()))))
    }

    /// Whether the worker can still answer.
    fn ask(&self, request: u64, reply: mpsc::UnboundedSender<Answer>) -> bool {
        let mut waiting = lock(&self.0);
        waiting.as_mut().is_some_and(|waiting| {
            waiting.insert(request, reply);
            true
        })
    }

    fn answer(&self, request: u64, answer: Answer) {
        let reply = lock(&self.0).as_mut().and_then(|waiting| waiting.remove(&request));
        // Nobody waits for it where the request was given up.
        let _ = reply.map(|reply| reply.send(answer));
    }

    fn close(&self, why: &Failure) {
        for reply in lock(&self.0).take().into_iter().flat_map(BTreeMap::into_values) {
            let _ = reply.send(Err(why.clone()));
        }
    }
}

/// What a failure calls a worker.
#[derive(Clone, Debug)]
pub(super) struct Name {
    text: String,
    /// It is the only one of its side, known by what failed.
    alone: bool,
}

impl Name {
    pub(super) fn new(role: Role, rank: usize, ranks: usize) -> Self {
        match ranks {
            1 => Self { text: format!("the {role} worker"), alone: true },
            _ => Self { text: format!("{role} rank {rank}"), alone: false },
        }
    }

    fn lost(&self, why: impl std::fmt::Display) -> Failure {
        Failure::new(Code::Peer, format!("{} is lost: {why}", self.text))
    }

    fn silent(&self, since: Duration) -> Failure {
        let silence = since.as_secs();
        Failure::new(Code::Peer, format!("{} does not answer: no word in {silence} s", self.text))
    }

    /// Says whose failure it is, where that is not plain.
    fn told(&self, failure: impl Into<Failure>) -> Failure {
        let failure = failure.into();
        match self.alone {
            true => failure,
            false => Failure { message: format!("{}: {}", self.text, failure.message), ..failure },
        }
    }
}

/// A worker that was started and may not be ready yet; it dies with this value.
pub(super) struct Starting {
    name: Name,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    words: mpsc::UnboundedSender<Vec<u8>>,
}

/// A running worker; it dies with this value.
pub(super) struct Worker {
    name: Name,
    words: mpsc::UnboundedSender<Vec<u8>>,
    asked: Asked,
    /// Changes with each of its words.
    heard: watch::Receiver<()>,
    end: JoinHandle<Result<Account, Failure>>,
    _child: Child,
}

impl Starting {
    /// Starts the process.
    pub(super) fn new(name: Name, command: &mut Command) -> Result<Self, Failure> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = piped.spawn().map_err(|why| name.lost(why))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(name.lost("it has no pipes"));
        };
        let (words, outbox) = mpsc::unbounded_channel();
        tokio::spawn(write(stdin, outbox));
        Ok(Self { name, child, lines: BufReader::new(stdout).lines(), words })
    }

    /// Waits for its first word.
    pub(super) async fn ready(&mut self) -> Result<FromWorker, Failure> {
        loop {
            match next(&mut self.lines, &self.name).await? {
                FromWorker::Here => {}
                ready @ FromWorker::Ready { .. } => return Ok(ready),
                other => return Err(unexpected(other, &self.name)),
            }
        }
    }

    /// Listens to it from now on. Words that answer nothing go to `heard`.
    pub(super) fn listen(
        self,
        first_loss: FirstLoss,
        heard: impl FnMut(FromWorker) -> Option<FromWorker> + Send + 'static,
    ) -> Worker {
        let Self { name, child, lines, words } = self;
        let (asked, (awake, awoken)) = (Asked::new(), watch::channel(()));
        let ear = Ear { name: name.clone(), asked: asked.clone(), awake, first_loss };
        let end = tokio::spawn(ear.listen(lines, heard));
        Worker { name, words, asked, heard: awoken, end, _child: child }
    }
}

impl Worker {
    /// Asks something about a request, about which nothing else is being asked. The answer goes
    /// to `reply`; never blocks, so that words to several workers can keep their order.
    pub(super) fn ask(
        &self,
        request: u64,
        word: &ToWorker,
        reply: mpsc::UnboundedSender<Answer>,
    ) -> Result<(), Failure> {
        if !self.asked.ask(request, reply) {
            return Err(self.name.lost("it ended"));
        }
        self.say(word)
    }

    /// What it does not hear shows in its silence.
    pub(super) fn say(&self, word: &ToWorker) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(word).map_err(|why| self.name.lost(why))?;
        line.push(b'\n');
        let _ = self.words.send(line);
        Ok(())
    }

    /// That it hangs, if it does.
    pub(super) async fn hangs(&self) -> Option<Failure> {
        let mut heard = self.heard.clone();
        heard.mark_unchanged();
        self.say(&ToWorker::Ping).err().or(match timeout(PING, heard.changed()).await {
            Ok(_) => None,
            Err(_) => Some(self.name.silent(PING)),
        })
    }

    /// Its last account, or why it failed, once it was told to finish.
    pub(super) async fn end(self) -> Result<Account, Failure> {
        self.end.await.map_err(|why| self.name.lost(why))?
    }
}

/// Writes until there is nobody to hear it or nothing more to say.
async fn write(mut stdin: impl AsyncWrite + Unpin, mut words: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(line) = words.recv().await {
        if stdin.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// What hears a worker's words.
struct Ear {
    name: Name,
    asked: Asked,
    /// Told of each word.
    awake: watch::Sender<()>,
    first_loss: FirstLoss,
}

impl Ear {
    /// Hands answers to those who asked, until the last words.
    async fn listen(
        self,
        mut lines: Lines<BufReader<ChildStdout>>,
        mut heard: impl FnMut(FromWorker) -> Option<FromWorker>,
    ) -> Result<Account, Failure> {
        let end = loop {
            let word = next(&mut lines, &self.name).await;
            self.awake.send_replace(());
            match word.map(|word| self.answer(word)) {
                Ok(None) => {}
                Ok(Some(FromWorker::Finished { account })) => break Ok(account),
                Ok(Some(word)) => match heard(word) {
                    None => {}
                    Some(other) => break Err(unexpected(other, &self.name)),
                },
                Err(why) => break Err(why),
            }
        };
        match &end {
            Ok(_) => self.asked.close(&self.name.lost("it ended")),
            Err(why) => {
                self.first_loss.tell(why);
                self.asked.close(why);
            }
        }
        end
    }

    /// Takes a word that answers something; any other comes back.
    fn answer(&self, word: FromWorker) -> Option<FromWorker> {
        match word {
            FromWorker::Here => {}
            FromWorker::Refused { request, failure } => {
                self.asked.answer(request, Err(self.name.told(failure)));
            }
            FromWorker::Kept { request }
            | FromWorker::Received { request, .. }
            | FromWorker::Dismissed { request } => self.asked.answer(request, Ok(word)),
            other => return Some(other),
        }
        None
    }
}

async fn next<R: AsyncRead + Unpin>(
    lines: &mut Lines<BufReader<R>>,
    name: &Name,
) -> Result<FromWorker, Failure> {
    let line = timeout(SILENCE, lines.next_line()).await;
    let line = line.map_err(|_| name.silent(SILENCE))?;
    let line = line.map_err(|why| name.lost(why))?;
    let line = line.ok_or_else(|| name.lost("it ended without a word"))?;
    serde_json::from_str(&line).map_err(|why| name.lost(why))
}

fn unexpected(word: FromWorker, name: &Name) -> Failure {
    match word {
        FromWorker::Failed(failure) => name.told(failure),
        other => name.lost(format!("it said {other:?}")),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
