//! What does not go together: one clear line, on both sides where both know.

use std::path::Path;

use super::{BLOCKS, decode, four, prefill, right, role, served, two};
use crate::common::{FULL, SECRET, Said, command, failed, first_line, run, with_secrets, write};

const GIVE_BOTH: &str = "give both sides the same --secret-file";

/// With ADDRESS for an address.
fn failed_at(said: &Said, address: &str) -> (Option<i32>, String, String) {
    let (code, error, help) = failed(said);
    (code, error.replace(address, "ADDRESS"), help)
}

/// Flags, and why nobody comes in with them.
type Wrong = (&'static [&'static str], &'static str);

/// Whoever is turned away is told why, and the prefill side waits for another.
#[test]
fn secrets_that_are_not_the_same() {
    let folder = with_secrets();
    let cases: [(&'static [&'static str], &[Wrong]); 2] = [
        (
            &SECRET,
            &[
                (
                    &["--secret-file", "other"],
                    "the peer did not take this side's secret for its own",
                ),
                (&[], "the peer has a secret and this side has none"),
            ],
        ),
        (&[], &[(&SECRET, "this side has a secret and the peer has none")]),
    ];
    for (own, wrong) in cases {
        let (p, address) = prefill(folder.path(), &two(own));
        for (theirs, error) in wrong {
            let said = decode(folder.path(), &address, &four(theirs));
            let told: serde_json::Value = serde_json::from_str(&said.stderr).unwrap();
            let error =
                format!("cannot reach the prefill host at {address}: {error}: give both the same");
            let expected = serde_json::json!({ "error": error, "hint": GIVE_BOTH, "exit_code": 5 });
            assert_eq!((said.code, told), (Some(5), expected));
        }
        right(&decode(folder.path(), &address, &four(own)).json());
        served(p, 3);
    }
}

/// Both sides end with one line that says the same, and the same code.
fn both_end(
    folder: &Path,
    [p_model, d_model]: [&str; 2],
    [p_more, d_more]: [&[&str]; 2],
    (code, error, help): (i32, &str, &str),
    on: &str,
) {
    let p_more = [p_more, &SECRET].concat();
    let (line, p) = first_line(&mut command(folder, &role(p_model, "prefill", &p_more)));
    let address = line.strip_prefix("listening on ").unwrap().trim_end();
    let d_more = [&["--connect", address], d_more, &SECRET].concat();
    let d = run(folder, &role(d_model, "decode", &d_more));
    let told = |elsewhere: bool| {
        let error = if elsewhere { format!("on the {on} host: {error}") } else { error.to_owned() };
        (Some(code), error, help.to_owned())
    };
    assert_eq!(failed_at(&d, address), told(on == "prefill"));
    assert_eq!(failed_at(&p.end(), address), told(on == "decode"));
}

/// The ranks find it out when they greet each other, and people see what they found.
#[test]
fn models_that_differ() {
    let folder = with_secrets();
    write(&folder, "f32.json", &FULL.replace("bfloat16", "float32"));
    write(&folder, "wide.json", &FULL.replacen('{', r#"{"head_dim": 128, "#, 1));
    write(&folder, "eight.json", &FULL.replace(r#"layers": 4"#, r#"layers": 8"#));
    let help = "give both sides the same MODEL.json";
    for (models, error) in [
        (
            ["full.json", "windowed.json"],
            "model differs: mistral of 4 layers here, llama of 4 layers at the peer",
        ),
        (
            ["eight.json", "full.json"],
            "model differs: llama of 4 layers here, llama of 8 layers at the peer",
        ),
        (["full.json", "f32.json"], "KV cache dtype differs: f32 here, bf16 at the peer"),
        (
            ["full.json", "wide.json"],
            "bytes of keys of layers.0 differs: 256 here, 128 at the peer",
        ),
    ] {
        let error = format!("request 0: {error}");
        both_end(folder.path(), models, [&BLOCKS, &BLOCKS], (2, &error, help), "decode");
    }
}

#[test]
fn engines_that_cannot_exchange_anything() {
    let folder = with_secrets();
    let same = ["full.json"; 2];
    let interleave = "layers.0: context parallelism of unequal interleave: the source has blocks of \
                      64 tokens, the target of 32";
    let help = "give both engines blocks of one size (models with states round theirs up, by their \
             share of the heads), or let none share a sequence";
    let shapes: [&[&str]; 2] =
        [&["--prefill-tp", "4", "--prefill-context", "2"], &["--decode-block-size", "32"]];
    both_end(folder.path(), same, shapes, (3, interleave, help), "decode");
    let longer = "prompts of 201 tokens: the prefill engine was started with --tokens 200";
    let help = "give the prefill side as many --tokens as the decode side, or more";
    let tokens: [&[&str]; 2] = [&BLOCKS, &["--tokens", "201"]];
    both_end(folder.path(), same, tokens, (2, longer, help), "prefill");
}

/// A shape that no engine of this model has is one of another model.
#[test]
fn an_engine_of_another_model() {
    let folder = with_secrets();
    write(&folder, "three.json", &FULL.replace("heads\": 2", "heads\": 3").replace("128", "192"));
    let error = "the prefill engine: layers.0: 2 units of keys cannot be shared by 3 ranks";
    let help = "give both hosts the same MODEL.json";
    let shapes: [&[&str]; 2] = [&["--prefill-tp", "3"], &[]];
    both_end(folder.path(), ["three.json", "full.json"], shapes, (2, error, help), "decode");
}

#[test]
fn flags_of_the_other_side() {
    let folder = with_secrets();
    let help = "each side is told what it is by its own command; see kvferry handoff --help";
    let connect = ["--connect", "127.0.0.1:1"];
    for (arguments, error) in [
        ([&["handoff", "full.json"], &connect[..]].concat(), "--connect is for --role decode"),
        (role("full.json", "prefill", &connect), "--connect is for --role decode"),
        (role("full.json", "prefill", &["--requests", "2"]), "--requests is for --role decode"),
        (role("full.json", "prefill", &["--allow", "::1"]), "--allow is for --role decode"),
        (
            role("full.json", "prefill", &["--decode-tp", "2"]),
            "the shape of the decode engine is for --role decode",
        ),
        (
            role("full.json", "decode", &[&connect[..], &["--from", "p.json"]].concat()),
            "the shape of the prefill engine is for --role prefill",
        ),
        (
            role("full.json", "decode", &[&connect[..], &["--listen", "[::1]:0"]].concat()),
            "--listen is for --role prefill",
        ),
    ] {
        let said = run(folder.path(), &arguments);
        assert_eq!(failed(&said), (Some(2), error.to_owned(), help.to_owned()));
    }
    let said = run(folder.path(), &role("full.json", "decode", &[]));
    let error = "the following required arguments were not provided: --connect <HOST:PORT>";
    assert_eq!(failed(&said).1, error);
}

#[test]
fn nobody_is_there() {
    let folder = with_secrets();
    for (to, error, help) in [
        (
            "127.0.0.1",
            "invalid socket address",
            "give --connect HOST:PORT, as the prefill side prints it",
        ),
        (
            "127.0.0.1:1",
            "Connection refused (os error 111)",
            "start the prefill side first; --connect takes the address that it prints",
        ),
    ] {
        let error = format!("cannot reach the prefill host at ADDRESS: {error}");
        let said = decode(folder.path(), to, &SECRET);
        assert_eq!(failed_at(&said, to), (Some(5), error, help.to_owned()));
    }
}
