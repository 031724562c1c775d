use std::path::PathBuf;

use libfabric_sys::Version;

/// What libfabric says of the domain that was opened; nothing here is a hope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricFacts {
    /// The file of the library.
    pub library: PathBuf,
    /// Its version.
    pub version: Version,
    /// The provider's full name: `tcp;ofi_rxm` may be had where `tcp` was asked for.
    pub provider: String,
    /// The name of its fabric.
    pub fabric: String,
    /// The name of its domain, which is the card.
    pub domain: String,
    /// How memory is registered and named.
    pub modes: RegistrationModes,
    /// Bytes of one operation at most.
    pub max_message: u64,
    /// Operations that may be in flight at once: the card's limit, or a smaller one of the settings.
    pub operations: usize,
    /// Contiguous pieces of remote memory in one operation. One is used, whatever this says.
    pub remote_pieces: usize,
    /// Bytes of the word that a write can carry along; a [`Counter`](super::Counter) needs 4.
    pub word_bytes: usize,
    /// The card wakes the thread, as far as was known when it was opened.
    pub wakes: bool,
    /// The target of an operation must run the library too, or nothing moves.
    pub manual_progress: bool,
}

impl FabricFacts {
    /// Whether the card itself looks at a key with each access, so that none follows once it is closed.
    /// In software an operation that has begun may go on.
    pub(super) fn keys_end_at_once(&self) -> bool {
        let card = self.provider.split(';').next().unwrap_or_default();
        matches!(card, "verbs" | "cxi") || card == "efa" && !self.manual_progress
    }
}

/// How a domain wants memory to be registered and named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrationModes {
    /// All flags, as libfabric has them.
    pub flags: i32,
    /// A remote byte is named by its address there, else by its place in the registration.
    pub virtual_addresses: bool,
    /// Local memory must be registered as well. It always is.
    pub local: bool,
    /// Pages must be there when they are registered.
    pub allocated: bool,
    /// Keys are chosen by the card, else by this side, at random.
    pub card_keys: bool,
}
