//! Lines from another host, each of which comes in time and has an end.

use std::io::ErrorKind;
use std::time::Duration;

use kvferry::greet::Reading;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::time::timeout;

use super::super::child::SILENCE;
use super::super::messages::Told;
use crate::failure::{Code, Failure};

/// Bytes of a line: the parameters of an engine of as many ranks as may be, with long names.
const MAX_LINE: u64 = 256 << 10;

/// Letters of a failure.
const MAX_SHOWN: usize = 2000;

/// What stands in a line; nothing does in that of one who only shows that it runs.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line<W> {
    Word(W),
    /// The last words when something failed.
    Failed(Told),
}

pub(super) struct Ear {
    read: BufReader<Reading>,
    /// Who is at the other end.
    pub(super) peer: &'static str,
}

impl Ear {
    pub(super) fn new(read: Reading, peer: &'static str) -> Self {
        Self { read: BufReader::new(read), peer }
    }

    /// The next word.
    pub(super) async fn word<W: DeserializeOwned>(&mut self) -> Result<W, Failure> {
        loop {
            let line = timeout(SILENCE, self.line()).await;
            let line = line.map_err(|_| self.silent(SILENCE))??;
            if line.is_empty() {
                continue;
            }
            return match serde_json::from_slice(&line) {
                Ok(Line::Word(word)) => Ok(word),
                Ok(Line::Failed(told)) => Err(self.told(told)),
                Err(why) => {
                    let why = printable(&why.to_string());
                    Err(self.lost(format!("it said what is no word: {why}")))
                }
            };
        }
    }

    async fn line(&mut self) -> Result<Vec<u8>, Failure> {
        let mut line = Vec::new();
        let read = (&mut self.read).take(MAX_LINE).read_until(b'\n', &mut line).await;
        let read = read.map_err(|why| match why.kind() {
            // Under TLS, without a last word.
            ErrorKind::UnexpectedEof => self.lost("it hung up"),
            _ => self.lost(why),
        })?;
        match line.pop() {
            Some(b'\n') => Ok(line),
            _ if read as u64 == MAX_LINE => {
                Err(self.lost(format!("it said a line of more than {MAX_LINE} bytes")))
            }
            _ => Err(self.lost("it hung up")),
        }
    }

    fn lost(&self, why: impl std::fmt::Display) -> Failure {
        Failure::new(Code::Peer, format!("the {} host is lost: {why}", self.peer))
    }

    fn silent(&self, since: Duration) -> Failure {
        let silence = since.as_secs();
        let why = format!("the {} host does not answer: no word in {silence} s", self.peer);
        Failure::new(Code::Peer, why)
    }

    /// Says whose failure it is.
    fn told(&self, told: Told) -> Failure {
        let Failure { code, message, hint } = told.into();
        let message = format!("on the {} host: {}", self.peer, printable(&message));
        Failure { code, message, hint: hint.as_deref().map(printable) }
    }
}

/// What another host says is shown on this one's terminal, on one line.
fn printable(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(MAX_SHOWN).collect()
}
