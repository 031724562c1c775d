use super::tls::Binding;
use super::{HELLO_LEN, Secret};

/// Bytes of a proof.
pub const PROOF_LEN: usize = 32;

/// The two ends of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Dialler,
    Listener,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Dialler => Self::Listener,
            Self::Listener => Self::Dialler,
        }
    }

    /// Of equal length, so that no label and hello can be read as another label and hello.
    fn label(self) -> &'static [u8; 24] {
        match self {
            Self::Dialler => b"kvferry proof 1 dialler\0",
            Self::Listener => b"kvferry proof 1 listener",
        }
    }
}

/// Both hellos of a socket, as they were said, and what names the TLS session around them.
#[derive(Clone, Copy)]
pub(super) struct Transcript {
    pub(super) dialler: [u8; HELLO_LEN],
    pub(super) listener: [u8; HELLO_LEN],
    /// With none, nothing goes in.
    pub(super) binding: Option<Binding>,
}

impl Transcript {
    /// What this side says to prove that it has the secret.
    pub(super) fn proof(&self, secret: &Secret, side: Side) -> [u8; PROOF_LEN] {
        secret.tag(&self.parts(side))
    }

    /// Whether a proof is the one of this side, in a time that tells nothing about it.
    pub(super) fn proves(&self, secret: &Secret, side: Side, proof: &[u8]) -> bool {
        secret.is_tag(&self.parts(side), proof)
    }

    fn parts(&self, side: Side) -> [&[u8]; 4] {
        let binding = self.binding.as_ref().map_or(&[][..], |binding| &binding[..]);
        [side.label(), &self.dialler, &self.listener, binding]
    }
}
