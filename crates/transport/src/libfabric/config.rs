use std::path::PathBuf;

use super::OpenError;

/// Operations in flight that nobody needs more of.
const MAX_OPERATIONS: usize = 1 << 16;

/// Works that may wait for their turn.
const MAX_WORKS: usize = 1 << 16;

/// The smallest part into which memory may be cut: a page of any size that is common.
const MIN_GRAIN: u64 = 2 << 20;

/// The names of a core that the kernel knows.
const MAX_CORES: usize = 1024;

/// Settings of a [`Driver`](super::Driver), checked when it is opened.
#[derive(Clone, Debug)]
pub struct FabricConfig {
    /// libfabric's name for what moves the bytes: `efa`, `verbs;ofi_rxm`, `tcp`, `shm`.
    pub provider: String,
    /// The fabric among several of that provider (`efa` or `efa-direct`), else its first.
    pub fabric: Option<String>,
    /// The domain, that is the card, among several, else the first.
    pub domain: Option<String>,
    /// The address to take, as text. `shm` has none.
    pub source: Option<String>,
    /// The library's file, if it is not where the loader finds it.
    pub library: Option<PathBuf>,
    /// The core that the thread is bound to: one near the card.
    pub core: Option<usize>,
    /// Works that may be open at once.
    pub max_works: usize,
    /// Operations that may be in flight at once. The card's own limit holds beside it.
    pub max_operations: usize,
    /// Bytes of one registration with the card: memory that is larger is registered in parts.
    pub grain: u64,
    /// Let the card wake the thread, where it can.
    pub wait: bool,
    /// Memory of devices will be registered.
    pub device_memory: bool,
}

impl FabricConfig {
    /// The defaults.
    #[must_use]
    pub fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            fabric: None,
            domain: None,
            source: None,
            library: None,
            core: None,
            max_works: 1024,
            max_operations: 4096,
            grain: 1 << 40,
            wait: true,
            device_memory: false,
        }
    }

    pub(super) fn check(&self) -> Result<(), OpenError> {
        let rule = |holds: bool, setting, rule| {
            if holds { Ok(()) } else { Err(OpenError::Config { setting, rule }) }
        };
        let texts = [Some(&self.provider), self.fabric.as_ref(), self.domain.as_ref()];
        let mut texts = texts.into_iter().chain([self.source.as_ref()]).flatten();
        rule(!self.provider.is_empty(), "provider", "named")?;
        rule(texts.all(|text| !text.contains('\0')), "a name", "free of zeros")?;
        rule((1..=MAX_WORKS).contains(&self.max_works), "max_works", "from 1 to 65536")?;
        let operations = (1..=MAX_OPERATIONS).contains(&self.max_operations);
        rule(operations, "max_operations", "from 1 to 65536")?;
        rule(self.core.is_none_or(|core| core < MAX_CORES), "core", "below 1024")?;
        let grain = self.grain >= MIN_GRAIN && self.grain.is_power_of_two();
        rule(grain, "grain", "a power of two, and 2 MiB at least")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_named() {
        let good = FabricConfig::new("tcp");
        assert_eq!(good.check(), Ok(()));
        for (config, named) in [
            (FabricConfig { provider: String::new(), ..good.clone() }, "provider"),
            (FabricConfig { source: Some("a\0b".to_owned()), ..good.clone() }, "a name"),
            (FabricConfig { max_works: 0, ..good.clone() }, "max_works"),
            (FabricConfig { max_operations: 1 << 17, ..good.clone() }, "max_operations"),
            (FabricConfig { core: Some(1024), ..good.clone() }, "core"),
            (FabricConfig { grain: 3 << 20, ..good.clone() }, "grain"),
        ] {
            let error = config.check().unwrap_err();
            assert!(
                matches!(error, OpenError::Config { setting, .. } if setting == named),
                "{error}"
            );
        }
    }
}
