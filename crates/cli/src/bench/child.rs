//! A source in a process of this host.

use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::args::{SourceArgs, TrustArgs};
use super::source;
use crate::failure::{Code, Failure};
use crate::output;
use crate::pair::{Door, Told};

/// A process is there within this time.
const START: Duration = Duration::from_secs(30);

/// One that has said its last word ends within this time.
const END: Duration = Duration::from_secs(10);

/// The one word of the source's process on its output; the rest is said over the link.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum First {
    Listening(String),
    Failed(Told),
}

/// A source that listens; it dies with this value.
pub(super) struct Source {
    child: Child,
    pub(super) address: String,
}

impl Source {
    pub(super) async fn start(trust: &TrustArgs) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(lost)?;
        let mut command = Command::new(program);
        command.arg("bench-source");
        for (flag, file) in trust.files() {
            // In one word, so that no value is taken for a flag.
            let mut word = std::ffi::OsString::from(flag);
            word.push("=");
            word.push(file);
            command.arg(word);
        }
        // What goes wrong is told over the pipe, and by this process alone.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().map_err(lost)?;
        let stdout = child.stdout.take().ok_or_else(|| lost("it has no pipes"))?;
        let mut lines = BufReader::new(stdout).lines();
        let late = |_| lost(format!("no word in {} s", START.as_secs()));
        let line = timeout(START, lines.next_line()).await.map_err(late)?.map_err(lost)?;
        let line = line.ok_or_else(|| lost("it ended without a word"))?;
        match serde_json::from_str(&line).map_err(lost)? {
            First::Listening(address) => Ok(Self { child, address }),
            First::Failed(told) => Err(told.into()),
        }
    }

    /// Waits for its end.
    pub(super) async fn end(mut self) -> Result<(), Failure> {
        // Held until then: the end of it would say that this process is gone.
        let _stdin = self.child.stdin.take();
        let late = |_| lost("it does not end");
        let status = timeout(END, self.child.wait()).await.map_err(late)?.map_err(lost)?;
        if status.success() { Ok(()) } else { Err(lost(format!("it ended with {status}"))) }
    }
}

impl TrustArgs {
    /// The flags that were given.
    fn files(&self) -> impl Iterator<Item = (&'static str, &std::path::PathBuf)> {
        let secret = [("--secret-file", self.secret_file.as_ref())];
        let given = secret.into_iter().chain(self.tls.given());
        given.filter_map(|(flag, file)| Some((flag, file?)))
    }
}

fn lost(why: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Peer, format!("the source's process is lost: {why}"))
}

/// The process itself: serves until the reader is done or its own parent is gone.
pub(crate) async fn run(arguments: &SourceArgs) -> Result<(), Failure> {
    let opened = async {
        let config = arguments.trust.link(None).config()?;
        let door = Door::open(&config).await?;
        Ok((config, door))
    };
    let (config, door) = match opened.await {
        Ok(opened) => opened,
        Err(failure) => {
            let failure: Failure = failure;
            output::line(json!(First::Failed(failure.clone().into())));
            return Err(failure);
        }
    };
    output::line(json!(First::Listening(door.address().to_string())));
    tokio::select! {
        served = source::serve(door, &config) => served.map(|_| ()),
        () = parent_gone() => Err(lost("its parent is gone")),
    }
}

/// Waits for the end of the input, in a thread that holds up no end of this process.
async fn parent_gone() {
    let (gone, wait) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = gone.send(());
    });
    let _ = wait.await;
}
