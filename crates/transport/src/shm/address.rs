use std::fmt::{self, Display};
use std::fs;
use std::io;

use super::Unusable;
use crate::{AgentId, Card};

pub(super) const PROVIDER: &str = "shm";

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The most bytes of a socket's name; the system takes 107.
const MAX_NAME: usize = 100;

/// Where a source listens. The socket has no file: its name is gone with the source, however
/// that ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// Drawn by the kernel when it starts: names this host until it is started anew.
    boot: String,
    name: String,
}

impl Address {
    /// One that nobody else listens at.
    pub(super) fn new(agent: AgentId) -> io::Result<Self> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let name = format!("kvferry-{:016x}-{:016x}", agent.0, u64::from_ne_bytes(random));
        Ok(Self { boot: boot_id()?, name })
    }

    /// The address of a card, if it is one of this host.
    pub(super) fn of(card: &Card) -> Result<Self, Unusable> {
        let malformed = || Unusable::Address { address: card.address.clone() };
        if card.provider != PROVIDER {
            return Err(Unusable::Provider { found: card.provider });
        }
        let (boot, name) = card.address.split_once('/').ok_or_else(malformed)?;
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let right = |text: &str| (1..=MAX_NAME).contains(&text.len()) && plain(text);
        if !right(boot) || !right(name) {
            return Err(malformed());
        }
        let own = boot_id().map_err(Unusable::system("read the boot id of this host"))?;
        if own != boot {
            return Err(Unusable::OtherHost { own, theirs: boot.to_owned() });
        }
        Ok(Self { boot: boot.to_owned(), name: name.to_owned() })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.boot, self.name)
    }
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string(BOOT_ID)?.trim().to_owned())
}
