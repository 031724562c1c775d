//! Feeds files to a target: `replay TARGET FILE...`; without a target, lists them.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(target) = args.next().as_deref().and_then(fuzz::target) else {
        say("replay TARGET FILE..., where TARGET is one of:");
        fuzz::TARGETS.iter().for_each(|target| say(&format!("  {}", target.name)));
        return ExitCode::from(2);
    };
    for file in args {
        match std::fs::read(&file) {
            Ok(input) => (target.run)(&input),
            Err(error) => {
                say(&format!("{file}: {error}"));
                return ExitCode::FAILURE;
            }
        }
        say(&format!("{file}: passed"));
    }
    ExitCode::SUCCESS
}

#[allow(clippy::print_stderr)]
fn say(line: &str) {
    eprintln!("{line}");
}
