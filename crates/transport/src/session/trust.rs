use std::sync::Arc;

use super::{Secret, Tls};

/// What both sides of every socket must show each other.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// What each proves to have. Without one, nobody leaves loopback.
    pub secret: Option<Arc<Secret>>,
    /// What certifies each, and encrypts what they say.
    pub tls: Option<Arc<Tls>>,
}

impl Trust {
    /// Whether a peer that was greeted has shown more than that it speaks the protocol.
    pub(crate) fn asks(&self) -> bool {
        self.secret.is_some() || self.tls.is_some()
    }
}

impl From<Option<Arc<Secret>>> for Trust {
    /// A secret at most, and no encryption.
    fn from(secret: Option<Arc<Secret>>) -> Self {
        Self { secret, tls: None }
    }
}
