//! Words between two parents that know each other.

use std::marker::PhantomData;
use std::time::Duration;

use kvferry::greet::{Stream, Writing};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::child::SILENCE;
use super::super::errors::failed;
use super::super::loss::FirstLoss;
use super::super::worker::BEAT;
use super::ear::{Ear, Line};
use crate::failure::{Code, Failure};

/// One of the two waits for the other's next word this long, however often that shows that it
/// runs: no lease lives longer.
const PATIENCE: Duration = Duration::from_secs(600);

/// The other side reads the last words within this time, or never.
const GOODBYE: Duration = Duration::from_secs(2);

/// Words that have come and nobody has taken yet; each is an answer or asks for one.
const UNHEARD: usize = 8;

/// A socket whose first words have been said.
pub(crate) struct Socket {
    pub(super) ear: Ear,
    write: Writing,
}

/// Says words of one kind and hears those of another.
pub(crate) struct Link<Out, In> {
    peer: &'static str,
    lines: mpsc::UnboundedSender<Vec<u8>>,
    heard: mpsc::Receiver<Result<In, Failure>>,
    writing: JoinHandle<()>,
    says: PhantomData<fn(Out)>,
}

impl Socket {
    /// `peer` is at the other end, as failures call it.
    pub(crate) fn new(stream: Stream, peer: &'static str) -> Self {
        let (read, write) = stream.into_split();
        Self { ear: Ear::new(read, peer), write }
    }
}

impl<Out: Serialize, In: DeserializeOwned + Send + 'static> Link<Out, In> {
    /// Speaks and listens from now on. The end of the other side is a loss.
    pub(crate) fn open(socket: Socket, first_loss: &FirstLoss) -> Self {
        let (lines, outbox) = mpsc::unbounded_channel();
        let (inbox, heard) = mpsc::channel(UNHEARD);
        let peer = socket.ear.peer;
        let writing = tokio::spawn(write(socket.write, outbox));
        tokio::spawn(listen(socket.ear, inbox, first_loss.clone()));
        Self { peer, lines, heard, writing, says: PhantomData }
    }

    /// What is not heard shows in the other side's silence.
    pub(crate) fn say(&self, word: Out) -> Result<(), Failure> {
        self.line(&Line::Word(word))
    }

    /// The next word.
    pub(crate) async fn next(&mut self) -> Result<In, Failure> {
        let word = timeout(PATIENCE, self.heard.recv()).await;
        let patience = PATIENCE.as_secs();
        let lost = |why: String| Failure::new(Code::Peer, format!("the {} host {why}", self.peer));
        word.map_err(|_| lost(format!("runs and does not go on: no answer in {patience} s")))?
            .unwrap_or_else(|| Err(lost("is lost".to_owned())))
    }

    /// Says why there is nothing more to say, and gives it back.
    pub(crate) async fn fail(self, failure: Failure) -> Failure {
        // The other side sees at least that this one is gone.
        let _ = self.line(&Line::Failed(failure.clone().into()));
        self.close().await;
        failure
    }

    /// Waits until the other side has heard all, and goes as well.
    pub(crate) async fn close(self) {
        let Self { lines, mut heard, writing, .. } = self;
        drop(lines);
        let goodbye = async {
            let _ = writing.await;
            while let Some(Ok(_)) = heard.recv().await {}
        };
        let _ = timeout(GOODBYE, goodbye).await;
    }

    fn line(&self, line: &Line<Out>) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(line).map_err(failed)?;
        line.push(b'\n');
        let _ = self.lines.send(line);
        Ok(())
    }
}

/// Writes until there is nothing more to say, or the other side does not read.
async fn write(mut socket: Writing, mut lines: mpsc::UnboundedReceiver<Vec<u8>>) {
    loop {
        let line = match timeout(BEAT, lines.recv()).await {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(_) => b"\n".to_vec(),
        };
        if !matches!(timeout(SILENCE, send(&mut socket, &line)).await, Ok(Ok(()))) {
            return;
        }
    }
    let _ = socket.shutdown().await;
}

async fn send(socket: &mut Writing, line: &[u8]) -> std::io::Result<()> {
    socket.write_all(line).await?;
    socket.flush().await
}

async fn listen<In: DeserializeOwned>(
    mut ear: Ear,
    heard: mpsc::Sender<Result<In, Failure>>,
    first_loss: FirstLoss,
) {
    loop {
        let word = ear.word().await;
        if let Err(why) = &word {
            first_loss.tell(why);
        }
        let last = word.is_err();
        // One that says more than it is asked for is held back.
        if heard.send(word).await.is_err() || last {
            return;
        }
    }
}
