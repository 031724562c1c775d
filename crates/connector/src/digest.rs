//! What decides the bytes of a KV cache, boiled down to 32 bytes.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// How many tokens a KV cache holds and a digest of all that decided them.
///
/// Both sides compute it from what they know themselves; D reads only when they are equal, so
/// that a router which mixes up two requests cannot answer one user from another's prompt.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptDigest {
    /// Tokens whose KV exists.
    pub valid: u64,
    /// SHA-256 of the [encoding](PromptIdentity::digest).
    pub sha256: [u8; 32],
}

impl fmt::Debug for PromptDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PromptDigest({} tokens, ", self.valid)?;
        self.sha256.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// All that decides the KV of a prompt's first tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct PromptIdentity<'a> {
    /// Ids of the tokens whose KV exists, from position 0 on.
    pub tokens: &'a [u32],
    /// Model id, as both engines were told.
    pub model: &'a str,
    /// Revision of the model.
    pub revision: &'a str,
    /// LoRA id; `None` for the base model.
    pub lora: Option<&'a str>,
    /// Hashes of the images, sounds and so on, in the order of the prompt.
    pub multimodal: &'a [&'a str],
    /// Cache salt; `None` where the request has none.
    pub salt: Option<&'a str>,
}

/// Version of the encoding, so that two versions never agree by accident.
const VERSION: u64 = 1;

/// Tags of the fields. A number once used keeps its meaning for ever.
mod tag {
    pub(super) const VERSION: u8 = 0;
    pub(super) const VALID: u8 = 1;
    pub(super) const TOKENS: u8 = 2;
    pub(super) const MODEL: u8 = 3;
    pub(super) const REVISION: u8 = 4;
    pub(super) const LORA: u8 = 5;
    pub(super) const MULTIMODAL: u8 = 6;
    pub(super) const SALT: u8 = 7;
}

impl PromptIdentity<'_> {
    /// SHA-256 over the fields, each as tag (one byte), length of the value (64 bits) and value,
    /// integers little-endian.
    ///
    /// In this order: 0 version (64 bits, 1) · 1 `valid` (64 bits) · 2 token ids (32 bits each)
    /// · 3 model · 4 revision · 5 LoRA · 6 one field for each multimodal hash · 7 salt. A field
    /// without a value is left out, which an empty value is not.
    #[must_use]
    pub fn digest(&self) -> PromptDigest {
        let valid = length(self.tokens);
        let mut hash = Sha256::new();
        field(&mut hash, tag::VERSION, &VERSION.to_le_bytes());
        field(&mut hash, tag::VALID, &valid.to_le_bytes());
        hash_tokens(&mut hash, self.tokens, valid);
        field(&mut hash, tag::MODEL, self.model.as_bytes());
        field(&mut hash, tag::REVISION, self.revision.as_bytes());
        self.lora.iter().for_each(|id| field(&mut hash, tag::LORA, id.as_bytes()));
        self.multimodal.iter().for_each(|h| field(&mut hash, tag::MULTIMODAL, h.as_bytes()));
        self.salt.iter().for_each(|salt| field(&mut hash, tag::SALT, salt.as_bytes()));
        PromptDigest { valid, sha256: hash.finalize().into() }
    }
}

fn field(hash: &mut Sha256, tag: u8, value: &[u8]) {
    header(hash, tag, length(value));
    hash.update(value);
}

fn header(hash: &mut Sha256, tag: u8, bytes: u64) {
    hash.update([tag]);
    hash.update(bytes.to_le_bytes());
}

/// The token field, without a second copy of a long prompt.
fn hash_tokens(hash: &mut Sha256, tokens: &[u32], valid: u64) {
    header(hash, tag::TOKENS, valid * 4);
    let mut buffer = [0; 1024];
    for chunk in tokens.chunks(buffer.len() / 4) {
        for (bytes, token) in buffer.chunks_exact_mut(4).zip(chunk) {
            bytes.copy_from_slice(&token.to_le_bytes());
        }
        hash.update(&buffer[..chunk.len() * 4]);
    }
}

/// The length of a slice in memory: fits 64 bits on every target there is.
fn length<T>(slice: &[T]) -> u64 {
    slice.len() as u64
}
