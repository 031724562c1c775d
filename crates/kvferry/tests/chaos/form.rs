//! How long the runs are, and the line that each of them leaves.

use std::fmt::Display;
use std::io::Write;
use std::time::Duration;

/// The short form is part of every test run, the long one that of `cargo xtask chaos`.
pub struct Form {
    /// Of the mixed run, in the long form.
    pub seconds: Option<u64>,
    pub seed: u64,
}

impl Form {
    pub fn of_environment() -> Self {
        let number = |name| {
            let text = std::env::var(name).ok()?;
            Some(text.parse().unwrap_or_else(|why| panic!("{name}={text}: {why}")))
        };
        Self {
            seconds: number("KVFERRY_CHAOS_SECONDS"),
            seed: number("KVFERRY_CHAOS_SEED").unwrap_or(1),
        }
    }

    pub fn is_long(&self) -> bool {
        self.seconds.is_some()
    }

    /// One of two values.
    pub fn pick<T>(&self, short: T, long: T) -> T {
        if self.is_long() { long } else { short }
    }

    pub fn mixed(&self) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(10))
    }
}

/// The line that `cargo xtask chaos` makes its table of; shown whoever runs the tests, since what
/// was skipped must not pass for what went well.
pub fn report(scenario: &str, result: impl Display) {
    let _ = writeln!(std::io::stdout().lock(), "\nchaos: {scenario}: {result}");
}
