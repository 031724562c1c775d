//! The binary as a user runs it.

pub mod processes;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Far above what any command here takes, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Full attention: 4 layers of 2 heads with 64 numbers of 2 bytes for key and value each, so
/// 2048 bytes a token.
pub const FULL: &str = r#"{
    "model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 4,
    "hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2
}"#;
pub const TOKEN_BYTES: u64 = 4 * 2 * (64 + 64) * 2;

/// The same with a window of 64 in every layer.
pub const WINDOWED: &str = r#"{
    "model_type": "mistral", "torch_dtype": "bfloat16", "num_hidden_layers": 4,
    "hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2,
    "sliding_window": 64
}"#;

/// What a command said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// The report of a command that went well.
    pub fn json(&self) -> Value {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }
}

/// A running command.
pub struct Running {
    pub child: Child,
    stdout: thread::JoinHandle<String>,
    stderr: thread::JoinHandle<String>,
}

/// Runs the binary in `folder`.
pub fn start(folder: &Path, arguments: &[&str]) -> Running {
    collected(&mut command(folder, arguments))
}

/// The binary in `folder`, not yet started, with both outputs to be read.
pub fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvferry"));
    command
        .args(arguments)
        .current_dir(folder)
        .env_remove("RUST_LOG")
        .env_remove("CLICOLOR_FORCE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a command of [`command`] to its end.
pub fn finish(command: &mut Command) -> Said {
    collected(command).end()
}

/// Starts a command of [`command`] and waits for its first line.
pub fn first_line(command: &mut Command) -> (String, Running) {
    let mut child = command.spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    (line, Running::collect(child, stdout))
}

fn collected(command: &mut Command) -> Running {
    let mut child = command.spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    Running::collect(child, stdout)
}

fn collect(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        text
    })
}

impl Running {
    fn collect(mut child: Child, stdout: impl Read + Send + 'static) -> Self {
        let stderr = collect(child.stderr.take().unwrap());
        Self { child, stdout: collect(stdout), stderr }
    }

    /// Waits for its end.
    pub fn end(mut self) -> Said {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                self.child.kill().unwrap();
                panic!("the command did not end: {:?}", self.stderr.join());
            }
            thread::sleep(Duration::from_millis(2));
        };
        let (stdout, stderr) = (self.stdout.join().unwrap(), self.stderr.join().unwrap());
        Said { code: status.code(), stdout, stderr }
    }
}

pub fn run(folder: &Path, arguments: &[&str]) -> Said {
    start(folder, arguments).end()
}

/// The lines of a text with single spaces, whatever the widths of columns.
pub fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Where `models/` is.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder with both models as `full.json` and `windowed.json`.
pub fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "full.json", FULL);
    write(&folder, "windowed.json", WINDOWED);
    folder
}

pub const SECRET: [&str; 2] = ["--secret-file", "secret"];

/// The same, with two files of secrets: `secret` and `other`.
pub fn with_secrets() -> tempfile::TempDir {
    let folder = folder();
    for (name, text) in [("secret", "as long as a secret must be"), ("other", "another secret!!")] {
        let mut options = std::fs::File::options();
        let file = options.write(true).create(true).mode(0o600).open(folder.path().join(name));
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }
    folder
}

/// The exit code of a failed command, its error and its help.
pub fn failed(said: &Said) -> (Option<i32>, String, String) {
    assert_eq!(said.stdout, "");
    let mut lines = said.stderr.lines();
    let error = lines.next().unwrap().strip_prefix("error: ").unwrap();
    let help = lines.next().map_or("", |line| line.strip_prefix(" help: ").unwrap());
    assert_eq!(lines.next(), None);
    (said.code, error.to_owned(), help.to_owned())
}

pub fn write(folder: &tempfile::TempDir, name: &str, text: &str) {
    std::fs::write(folder.path().join(name), text).unwrap();
}

/// Nothing may be left at either worker.
pub fn nothing_left(report: &Value) {
    for side in ["prefill", "decode"] {
        for what in ["leaked_blocks", "leases", "claims", "tokens", "receives"] {
            assert_eq!(report["accounts"][side][what], 0, "{what} of {side}");
        }
    }
}
