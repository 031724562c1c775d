//! Running other programs: what is run is printed first, as it could be typed.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::error::Error;

/// Runs a program whose output goes where ours goes; an error if it says no.
pub fn run(mut command: Command) -> Result<(), Error> {
    let shown = announce(&command);
    let status =
        command.status().map_err(|source| Error::Spawn { program: program(&command), source })?;
    must_succeed(shown, status)
}

/// Which of a program's two outputs to read.
#[derive(Clone, Copy)]
pub enum Output {
    Stdout,
    Stderr,
}

/// Runs a program, shows each line of one of its outputs and hands it to `see` without colours.
pub fn watch(command: Command, output: Output, mut see: impl FnMut(&str)) -> Result<(), Error> {
    let see = |line: &str| {
        see(line);
        true
    };
    sift(command, output, see)
}

/// [`watch`] that shows only the lines for which `see` says so.
pub fn sift(
    mut command: Command,
    output: Output,
    mut see: impl FnMut(&str) -> bool,
) -> Result<(), Error> {
    let shown = announce(&command);
    match output {
        Output::Stdout => command.stdout(Stdio::piped()),
        Output::Stderr => command.stderr(Stdio::piped()),
    };
    let mut child =
        command.spawn().map_err(|source| Error::Spawn { program: program(&command), source })?;
    for line in lines(&mut child) {
        if see(&anstream::adapter::strip_str(&line).to_string()) {
            anstream::println!("{line}");
        }
    }
    let status = child.wait().map_err(|source| Error::Spawn { program: shown.clone(), source })?;
    must_succeed(shown, status)
}

/// True if the program can be run and says yes; what it prints is dropped.
pub fn succeeds(mut command: Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Prints the command as it could be typed, with the program's folder left out.
fn announce(command: &Command) -> String {
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    let shown = std::iter::once(program(command)).chain(args).collect::<Vec<_>>().join(" ");
    anstream::println!("$ {shown}");
    shown
}

fn program(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}

/// The piped output, line by line; what is not UTF-8 is replaced, never an end.
fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let stdout = child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read>);
    let pipe = stdout.or_else(|| child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read>));
    pipe.into_iter()
        .flat_map(|pipe| BufReader::new(pipe).split(b'\n'))
        .map_while(Result::ok)
        .map(|line| String::from_utf8_lossy(&line).into_owned())
}

fn must_succeed(command: String, status: ExitStatus) -> Result<(), Error> {
    match status.success() {
        true => Ok(()),
        false => Err(Error::Exit { command, status: status.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_that_says_no_is_named() {
        run(sh("exit 0")).unwrap();
        let error = run(sh("exit 3")).unwrap_err().to_string();
        assert_eq!(error, "`sh -c exit 3` ended with exit status: 3");
    }

    #[test]
    fn watching_sees_plain_lines_of_the_chosen_output_alone() {
        let script = r"printf '\033[32mgreen\033[0m\nnext\n'; echo other >&2";
        let mut seen = Vec::new();
        watch(sh(script), Output::Stdout, |line| seen.push(line.to_owned())).unwrap();
        assert_eq!(seen, ["green", "next"]);
        seen.clear();
        watch(sh(script), Output::Stderr, |line| seen.push(line.to_owned())).unwrap();
        assert_eq!(seen, ["other"]);
    }

    #[test]
    fn a_missing_program_does_not_succeed() {
        assert!(!succeeds(Command::new("no-such-program-of-ours")));
        assert!(!succeeds(sh("exit 1")));
        assert!(succeeds(sh("exit 0")));
    }
}
