//! Each library and provider has a process of its own, for a process has one library.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use transport::libfabric::{Driver, FabricConfig, OpenError};

/// What a child process is to use: a provider and a library, which may be empty.
pub const STAGE: &str = "KVFERRY_TEST_FABRIC";

pub const PROVIDERS: [&str; 2] = ["tcp", "shm"];

/// Says it although the runner keeps what tests print.
pub fn say(line: &str) {
    let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
}

/// What this process is to use.
#[derive(Clone, Debug)]
pub struct Stage {
    pub provider: String,
    pub library: String,
}

impl Stage {
    fn own() -> Option<Self> {
        let text = std::env::var(STAGE).ok()?;
        let (provider, library) = text.split_once(' ')?;
        Some(Self { provider: provider.to_owned(), library: library.to_owned() })
    }

    pub fn text(&self) -> String {
        format!("{} {}", self.provider, self.library)
    }

    pub fn config(&self) -> FabricConfig {
        let mut config = FabricConfig::new(&self.provider);
        config.source = (self.provider != "shm").then(|| "127.0.0.1".to_owned());
        config.library = (!self.library.is_empty()).then(|| PathBuf::from(&self.library));
        config
    }

    pub fn open(&self) -> Driver {
        Driver::open(self.config()).unwrap()
    }

    /// Whether there is a library; said where not.
    fn is_here(&self, test: &str) -> bool {
        let Err(why) = Driver::open(self.config()) else { return true };
        assert!(matches!(why, OpenError::Load(_)) && self.library.is_empty(), "{self:?}: {why}");
        say(&format!("skipped: {test}: {why}"));
        false
    }
}

fn libraries() -> Vec<String> {
    let named = std::env::var("KVFERRY_LIBFABRIC").unwrap_or_default();
    named.split(':').filter(|name| !name.is_empty()).chain([""]).map(str::to_owned).collect()
}

/// Runs this very test once for each library and provider.
pub fn on_each_stage(test: &str, run: impl FnOnce(&Stage)) {
    if let Some(stage) = Stage::own() {
        if stage.is_here(test) {
            run(&stage);
        }
        return;
    }
    let all = libraries().into_iter().flat_map(|library| {
        PROVIDERS.map(|provider| Stage { provider: provider.to_owned(), library: library.clone() })
    });
    all.for_each(|stage| child(test, &stage));
}

fn child(test: &str, stage: &Stage) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(STAGE, stage.text());
    // So that what a thread gives back is the next one's.
    command.env("MALLOC_ARENA_MAX", "1");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stage:?}: {:?}\n{said}{complaints}", output.status);
    let told = |line: &&str| line.contains("skipped: ") || line.contains("measured: ");
    said.lines().filter(told).for_each(say);
}
