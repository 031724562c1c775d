//! One turn of one case: a fresh pair of processes that must end in time.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;

/// The slowest case of the largest workload takes a minute on two busy cores.
const LIMIT: Duration = Duration::from_secs(300);

/// How a step of `benches/peers` that hangs is ended.
const ALARM: i32 = 14;

/// What was said until the end, and why it ended if not well.
pub struct Turn {
    pub lines: Vec<String>,
    pub ended: Result<(), String>,
}

impl Turn {
    /// Runs the command to its end, or to that of its time.
    pub fn take(command: Command) -> Result<Self, Error> {
        Self::within(LIMIT, command)
    }

    fn within(limit: Duration, mut command: Command) -> Result<Self, Error> {
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |source| Error::Spawn { program: program.clone(), source };
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let said = listen(&mut child);
        let (lines, in_time) = until(Instant::now() + limit, &said);
        if !in_time {
            // It may be gone by now, which is as well.
            let _ = child.kill();
        }
        let status = child.wait().map_err(failed)?;
        let late = || format!("no end within {} s", limit.as_secs());
        Ok(Self { lines, ended: if in_time { verdict(status) } else { Err(late()) } })
    }
}

/// A thread that hands over each line, for a read cannot be given a deadline.
fn listen(child: &mut Child) -> Receiver<String> {
    let (sender, said) = mpsc::channel();
    let pipe = child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
    thread::spawn(move || {
        for line in pipe.into_iter().flat_map(|pipe| BufReader::new(pipe).split(b'\n')) {
            let Ok(line) = line else { break };
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
    said
}

/// All lines, and whether the last of them came before `end`.
fn until(end: Instant, said: &Receiver<String>) -> (Vec<String>, bool) {
    let mut lines = Vec::new();
    loop {
        match said.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => lines.push(line),
            Err(RecvTimeoutError::Disconnected) => return (lines, true),
            Err(RecvTimeoutError::Timeout) => return (lines, false),
        }
    }
}

fn verdict(status: ExitStatus) -> Result<(), String> {
    match (status.success(), status.signal()) {
        (true, _) => Ok(()),
        (false, Some(ALARM)) => Err("a step of it hung and was ended".to_owned()),
        (false, _) => Err(format!("it ended with {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(limit: u64, script: &str) -> Turn {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Turn::within(Duration::from_secs(limit), command).unwrap()
    }

    #[test]
    fn lines_and_end_are_told() {
        let good = turn(60, "echo a; echo b");
        assert_eq!((good.lines, good.ended), (vec!["a".to_owned(), "b".to_owned()], Ok(())));
        let bad = turn(60, "echo a; exit 3");
        assert_eq!(bad.lines, ["a"]);
        assert_eq!(bad.ended, Err("it ended with exit status: 3".to_owned()));
    }

    #[test]
    fn what_hangs_is_ended() {
        assert_eq!(turn(60, "kill -ALRM $$").ended, Err("a step of it hung and was ended".into()));
        let late = turn(1, "echo a; exec sleep 600");
        assert_eq!(late.lines, ["a"]);
        assert_eq!(late.ended, Err("no end within 1 s".to_owned()));
    }
}
