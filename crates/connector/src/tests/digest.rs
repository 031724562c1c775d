use sha2::{Digest, Sha256};

use super::support::prompt;
use crate::PromptIdentity;

fn hex(identity: PromptIdentity<'_>) -> String {
    identity.digest().sha256.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// [`full`], encoded by hand: tag, length, value.
const ENCODED: &[&[u8]] = &[
    b"\x00\x08\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0",
    b"\x01\x08\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0",
    b"\x02\x08\0\0\0\0\0\0\0\x01\0\0\0\0\0\x01\0",
    b"\x03\x09\0\0\0\0\0\0\0org/model",
    b"\x04\x04\0\0\0\0\0\0\0main",
    b"\x05\x06\0\0\0\0\0\0\0lora-7",
    b"\x06\x04\0\0\0\0\0\0\0cafe",
    b"\x06\x04\0\0\0\0\0\0\0f00d",
    b"\x07\x06\0\0\0\0\0\0\0pepper",
];

fn full() -> PromptIdentity<'static> {
    PromptIdentity {
        tokens: &[1, 65_536],
        model: "org/model",
        revision: "main",
        lora: Some("lora-7"),
        multimodal: &["cafe", "f00d"],
        salt: Some("pepper"),
    }
}

#[test]
fn encoded_as_written() {
    let expected: [u8; 32] = Sha256::digest(ENCODED.concat()).into();
    assert_eq!(full().digest().sha256, expected);
}

/// The values come from Python's hashlib over the same encoding.
#[test]
fn known_values() {
    assert_eq!(hex(full()), "fcd51f862acdda3e861b9a45f21f5a03075993acdfbede639799eec98bc7f24c");
    let tokens: Vec<u32> = (0..1000).collect();
    let long = PromptIdentity { tokens: &tokens, model: "m", ..Default::default() };
    assert_eq!(hex(long), "9046e56e6ad44ddb76f13e5113c6bf03b8bb6a87f5121511a1f1b4e0b93228f8");
    assert_eq!(
        hex(PromptIdentity::default()),
        "b8e42e166eb8cee1addf811bd9e446fb7ef6bf13ba8d1806481c3c90560cfbb5"
    );
}

#[test]
fn every_field_counts() {
    let base = full();
    let others = [
        PromptIdentity { tokens: &[1], ..base },
        PromptIdentity { tokens: &[65_536, 1], ..base },
        PromptIdentity { model: "org/mode", revision: "lmain", ..base },
        PromptIdentity { revision: "", ..base },
        PromptIdentity { lora: None, ..base },
        PromptIdentity { lora: Some(""), ..base },
        PromptIdentity { multimodal: &["f00d", "cafe"], ..base },
        PromptIdentity { multimodal: &["cafef00d"], ..base },
        PromptIdentity { multimodal: &[], ..base },
        PromptIdentity { lora: None, salt: Some("lora-7"), ..base },
        PromptIdentity { salt: None, ..base },
    ];
    let mut seen: Vec<_> = others.map(hex).into_iter().chain([hex(base)]).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), others.len() + 1);
}

#[test]
fn shown_short() {
    assert!(format!("{:?}", prompt()).starts_with("PromptDigest(3 tokens, "));
}
