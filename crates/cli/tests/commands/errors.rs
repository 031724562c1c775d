//! Wrong input: one clear line, at most one of help, and a code that means something.

use std::net::{Ipv4Addr, TcpListener};

use crate::common::{FULL, command, finish, folder, root, run, write};
use serde_json::{Value, json};

const MODEL_HELP: &str = "give the path of a Hugging Face config.json; some are in models/";

/// Runs the command as it is and with `--json`, and compares all that it says.
fn fails(folder: &std::path::Path, arguments: &[&str], code: i32, error: &str, help: Option<&str>) {
    let said = run(folder, arguments);
    let mut expected = format!("error: {error}\n");
    if let Some(help) = help {
        expected += &format!(" help: {help}\n");
    }
    assert_eq!((said.stderr.as_str(), said.stdout.as_str()), (expected.as_str(), ""));
    assert_eq!(said.code, Some(code), "{arguments:?}");

    let said = run(folder, &[&["--json"], arguments].concat());
    assert_eq!((said.code, said.stdout.as_str()), (Some(code), ""), "{arguments:?}");
    assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
    let told: Value = serde_json::from_str(&said.stderr).unwrap();
    assert_eq!(told, json!({ "error": error, "hint": help, "exit_code": code }));
}

#[test]
fn a_model_that_cannot_be_read() {
    let folder = folder();
    let missing = "nope.json: No such file or directory (os error 2)";
    for command in ["plan", "handoff"] {
        fails(folder.path(), &[command, "nope.json"], 2, missing, Some(MODEL_HELP));
    }
    let replay = ["replay", "nope.json", "--pool", "1MiB"];
    fails(folder.path(), &replay, 2, missing, Some(MODEL_HELP));
    let a_folder = ".: Is a directory (os error 21)";
    fails(folder.path(), &["plan", "."], 2, a_folder, Some(MODEL_HELP));
}

#[test]
fn a_model_that_is_none() {
    let folder = folder();
    for (text, error) in [
        ("what?", "model.json: not JSON: expected value at line 1 column 1"),
        ("", "model.json: not JSON: EOF while parsing a value at line 1 column 0"),
        ("[1, 2]", "model.json: not a JSON object but [1,2]"),
        (
            r#"{"model_type": "llama", "num_hidden_layers": 0, "torch_dtype": "bfloat16"}"#,
            "model.json: `num_hidden_layers` is 0, outside 1 to 4096",
        ),
    ] {
        write(&folder, "model.json", text);
        for command in ["plan", "handoff"] {
            fails(folder.path(), &[command, "model.json"], 2, error, None);
        }
    }
}

/// The config may be sound; this library knows no rule for it.
#[test]
fn a_model_that_is_not_supported() {
    let folder = folder();
    let windowed = FULL.replacen('{', r#"{"sliding_window": 64, "#, 1);
    write(&folder, "model.json", &windowed);
    let error = "model.json: `sliding_window` = 64 is not supported for llama";
    for command in ["plan", "handoff"] {
        fails(folder.path(), &[command, "model.json"], 3, error, None);
    }
    write(&folder, "model.json", &FULL.replace("llama", "mamba"));
    let said = run(folder.path(), &["plan", "model.json"]);
    assert_eq!(said.code, Some(3));
    assert!(said.stderr.starts_with("error: model.json: `model_type` is \"mamba\"; known are"));
}

/// The largest numbers that are accepted are also computed with.
#[test]
fn the_largest_numbers() {
    let folder = folder();
    let plan = ["plan", "full.json", "--tokens", "1073741824", "--block-size", "1048576"];
    let said = run(folder.path(), &[&plan[..], &["--svg", "map.svg"]].concat());
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert!(said.stdout.contains("0..=1023"), "{}", said.stdout);
}

#[test]
fn log_levels_that_nobody_knows() {
    let folder = folder();
    let plan = |levels: &str, arguments: &[&str]| {
        let mut command = command(folder.path(), arguments);
        finish(command.env("RUST_LOG", levels))
    };
    let help = "give a level, such as RUST_LOG=info, or target=level pairs between commas";
    let error = "RUST_LOG is kvferry=loud: error parsing level filter: expected one of \"off\", \
                 \"error\", \"warn\", \"info\", \"debug\", \"trace\", or a number 0-5";
    let said = plan("kvferry=loud", &["plan", "full.json"]);
    assert_eq!(said.stderr, format!("error: {error}\n help: {help}\n"));
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""));
    let said = plan("kvferry=loud", &["--json", "plan", "full.json"]);
    let told: Value = serde_json::from_str(&said.stderr).unwrap();
    assert_eq!(told, json!({ "error": error, "hint": help, "exit_code": 2 }));
    for right in ["", "info", "warn,kvferry=debug", "off"] {
        assert_eq!(plan(right, &["plan", "full.json"]).code, Some(0), "{right}");
    }
}

#[test]
fn numbers_that_cannot_be() {
    let folder = folder();
    let see = Some("see kvferry --help");
    for (flag, value, error) in [
        ("--block-size", "0", "invalid value '0' for '--block-size <TOKENS>': must be at least 1"),
        ("--tokens", "0", "invalid value '0' for '--tokens <N>': must be at least 1"),
        (
            "--tokens",
            "many",
            "invalid value 'many' for '--tokens <N>': invalid digit found in string",
        ),
    ] {
        for command in ["plan", "handoff"] {
            fails(folder.path(), &[command, "full.json", flag, value], 2, error, see);
        }
    }
    for (flag, value, error) in [
        (
            "--block-size",
            "1_048_577",
            "invalid value '1_048_577' for '--block-size <TOKENS>': must be at most 1,048,576",
        ),
        (
            "--tokens",
            "1,073,741,825",
            "invalid value '1,073,741,825' for '--tokens <N>': must be at most 1,073,741,824",
        ),
        (
            "--tokens",
            "99999999999999999999",
            "invalid value '99999999999999999999' for '--tokens <N>': must be at most \
             1,073,741,824",
        ),
    ] {
        for command in ["plan", "handoff"] {
            fails(folder.path(), &[command, "full.json", flag, value], 2, error, see);
        }
    }
    let error = "invalid value '1000000001' for '--requests <R>': must be at most 1,000,000,000";
    fails(folder.path(), &["handoff", "full.json", "--requests", "1000000001"], 2, error, see);
    let error = "invalid value '1000000001' for '--limit <N>': must be at most 1,000,000,000";
    let limit = |limit| ["replay", "full.json", "--pool", "1MiB", "--limit", limit];
    fails(folder.path(), &limit("1000000001"), 2, error, see);
    let error = "invalid value '1000001' for '--limit <N>': must be at most 1,000,000 where the \
                 trace is generated (no trace given)";
    let shorter = Some("give --trace a file that is there, or a smaller --limit");
    fails(folder.path(), &limit("1000001"), 2, error, shorter);
    let error = "invalid value '0' for '--speed <X>': must be from 0.000001 to 1000000000";
    fails(folder.path(), &["replay", "full.json", "--pool", "1MiB", "--speed", "0"], 2, error, see);
    let error = "a pool of 1000 bytes holds no block of 131072 bytes beside the null block";
    let help = Some("give a larger --pool or a smaller --block-size");
    fails(folder.path(), &["replay", "full.json", "--pool", "1kB"], 2, error, help);
}

#[test]
fn words_that_nobody_knows() {
    let folder = folder();
    fails(
        folder.path(),
        &["plan", "full.json", "--frobnicate"],
        2,
        "unexpected argument '--frobnicate' found",
        Some("to pass '--frobnicate' as a value, use '-- --frobnicate'"),
    );
    fails(
        folder.path(),
        &["plan", "full.json", "--tokns", "5"],
        2,
        "unexpected argument '--tokns' found",
        Some("a similar argument exists: '--tokens'"),
    );
    fails(
        folder.path(),
        &["replay", "full.json"],
        2,
        "the following required arguments were not provided: --pool <BYTES>",
        Some("usage: kvferry replay --pool <BYTES> <MODEL.json>"),
    );
    fails(
        folder.path(),
        &["fly"],
        2,
        "unrecognized subcommand 'fly'",
        Some("usage: kvferry [OPTIONS] <COMMAND>"),
    );
}

#[test]
fn engines_whose_shapes_do_not_go_together() {
    let folder = folder();
    let shape = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let from = shape("p.json", r#"{"tensor": 4, "context": 4}"#);
    let to = shape("d.json", r#"{"tensor": 8, "block_size": 32}"#);
    let plan = |model, from, to| ["plan", model, "--from", from, "--to", to].map(String::from);
    let check = |arguments: [String; 6], code, error: &str, help| {
        fails(&root(), &arguments.each_ref().map(String::as_str), code, error, help);
    };
    check(
        plan("models/DeepSeek-V3.json", &from, &to),
        3,
        "layers.0: context parallelism of unequal interleave: the source has blocks of 64 \
         tokens, the target of 32",
        None,
    );
    let three = shape("three.json", r#"{"tensor": 3}"#);
    check(
        plan("models/gpt-oss-20b.json", &three, &to),
        2,
        "the prefill engine: layers.0: 8 units of keys cannot be shared by 3 ranks",
        Some("see the shape of --from"),
    );
    let typo = shape("typo.json", r#"{"tensro": 4}"#);
    check(
        plan("models/gpt-oss-20b.json", &typo, &to),
        2,
        &format!(
            "{typo}: unknown field `tensro`, expected one of `tensor`, `pipeline`, `context`, \
             `block_size`, `kernel_block`, `order`"
        ),
        Some("a shape is a JSON object such as {\"tensor\": 4, \"block_size\": 32}; see --help"),
    );
}

#[test]
fn addresses_that_cannot_be_listened_on() {
    let folder = folder();
    let local = Some(
        "give both sides the same --secret-file, or stay on this host with an address such as \
         127.0.0.1:0 or [::1]:0",
    );
    let error = "0.0.0.0 is not a loopback address: listening there needs a secret";
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let in_use = format!("cannot listen on {taken}: Address already in use (os error 98)");
    let other = Some(
        "give --listen an address of this host with a free port; port 0 lets the system choose",
    );
    for command in [&["handoff", "full.json"][..], &["replay", "full.json", "--pool", "1MiB"]] {
        let listen = |address| [command, &["--listen", address]].concat();
        fails(folder.path(), &listen("0.0.0.0:0"), 5, error, local);
        fails(folder.path(), &listen(&taken), 5, &in_use, other);
    }
}

#[test]
fn a_picture_that_cannot_be_drawn() {
    let folder = folder();
    fails(
        folder.path(),
        &["plan", "full.json", "--svg", "no/such/folder.svg"],
        2,
        "no/such/folder.svg: No such file or directory (os error 2)",
        Some("give --svg a file name in a folder that can be written to"),
    );
}

/// Help that was asked for is no failure.
#[test]
fn help_and_version() {
    let folder = folder();
    let help = run(folder.path(), &["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    assert!(help.stdout.contains("Usage: kvferry [OPTIONS] <COMMAND>"), "{}", help.stdout);
    assert!(!help.stdout.contains("-worker"), "{}", help.stdout);
    let version = run(folder.path(), &["--version"]);
    assert_eq!((version.code, version.stderr.as_str()), (Some(0), ""));
    assert_eq!(version.stdout, format!("kvferry {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(run(folder.path(), &[]).code, Some(2));
}
