//! The `kvferry` command line.

#![forbid(unsafe_code)]

mod args;
mod failure;
mod model;
mod output;
mod plan;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print(arguments.json);
            failure.exit_code()
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Plan(plan) => plan::run(plan, arguments.json),
    }
}
