//! `kvferry handoff` and `replay` between engines of several ranks, a process each.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::processes::{is_worker, kill, rank_of, stop, wait};
use crate::common::{Running, folder, nothing_left, root, run, start, words, write};
use serde_json::{Value, json};

/// 12 heads, so that 2, 3 and 4 ranks share them evenly: 4 layers × 12 heads × (64 + 64) numbers
/// × 2 bytes.
const TOKEN_BYTES: u64 = 4 * 12 * (64 + 64) * 2;
const FULL: &str = r#"{
    "model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 4,
    "hidden_size": 768, "num_attention_heads": 12, "num_key_value_heads": 12
}"#;

/// Two heads for more ranks than that: neighbours keep the same one.
const TWO_HEADS: &str = r#"{
    "model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 4,
    "hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2
}"#;

/// Every other layer keeps a state.
const HYBRID: &str = "LFM2-1.2B";

/// The flags of one side: `tp2 pp3 cp2 bs64 kb8` and an order.
fn flags(side: &str, shape: &str) -> Vec<String> {
    let flag = |word: &str| {
        let cut = word.find(|c: char| c.is_ascii_digit());
        let (name, value) = match cut.map(|at| word.split_at(at)) {
            Some(("tp", n)) => ("tp", n),
            Some(("pp", n)) => ("pp", n),
            Some(("cp", n)) => ("context", n),
            Some(("bs", n)) => ("block-size", n),
            Some(("kb", n)) => ("kernel-block", n),
            _ => ("order", word),
        };
        [format!("--{side}-{name}"), value.to_owned()]
    };
    shape.split_whitespace().flat_map(flag).collect()
}

fn arguments(model: &str, tokens: u64, from: &str, to: &str) -> Vec<String> {
    let tokens = tokens.to_string();
    let common = ["handoff", model, "--tokens", &tokens, "--block-size", "16", "--json"];
    let common = common.map(str::to_owned).to_vec();
    [common, flags("prefill", from), flags("decode", to)].concat()
}

/// Hands 3 prompts over and gives the bytes of one. The command itself checks each byte against
/// the mask of its layer, and the sum against what had to move.
fn hand_over(model: &str, tokens: u64, from: &str, to: &str) -> u64 {
    let folder = folder();
    write(&folder, "twelve.json", FULL);
    write(
        &folder,
        "windowed.json",
        &FULL.replace("llama", "mistral").replacen('{', r#"{"sliding_window": 64,"#, 1),
    );
    write(&folder, "two.json", TWO_HEADS);
    let models = root().join("models").canonicalize().unwrap();
    let name = format!("{model}.json");
    let path = match models.join(&name) {
        path if path.is_file() => path.display().to_string(),
        _ => name,
    };
    let mut arguments = arguments(&path, tokens, from, to);
    arguments.extend(["--requests", "3"].map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let said = run(folder.path(), &arguments);
    assert_eq!(said.code, Some(0), "{model} {from} → {to}: {}", said.stderr);
    let report = said.json();
    nothing_left(&report);
    assert_eq!(report["requests"], 3);
    let of = |side: &str| report["accounts"][side]["ranks"].as_u64().unwrap();
    assert_eq!([of("prefill"), of("decode")], [from, to].map(ranks), "{model} {from} → {to}");
    report["bytes"].as_u64().unwrap() / 3
}

fn ranks(shape: &str) -> u64 {
    let number = |name| shape.split_whitespace().find_map(|word| word.strip_prefix(name));
    let number = |name| number(name).map_or(1, |n: &str| n.parse::<u64>().unwrap());
    number("tp") * number("pp")
}

/// However the heads and layers are shared, each is moved once.
#[test]
fn heads_and_layers_are_shared_in_other_ways() {
    // A query at 199 sees keys from 0 or, with a window of 64, from 136 on: blocks 0 to 12, or
    // 8 to 12, of 16 tokens.
    for (model, blocks) in [("twelve", 13), ("windowed", 5)] {
        for (from, to) in [
            ("tp1", "tp2"),
            ("tp2", "tp1"),
            ("tp2", "tp3"),
            ("tp4", "tp2"),
            ("pp2", "tp2"),
            ("tp2", "pp2"),
            ("tp2 pp2", "pp3"),
            ("tp2 cp2", "tp1"),
            ("tp4 cp2", "tp3"),
            ("tp2", "tp2 cp2"),
            ("tp4 cp2", "tp4 cp4"),
            ("tp2", "tp3 tokens_outside"),
            ("apart", "tp2 block_outermost"),
            ("tp2 kb8", "tp1"),
        ] {
            let bytes = hand_over(model, 200, from, to);
            assert_eq!(bytes, blocks * 16 * TOKEN_BYTES, "{model} {from} → {to}");
        }
    }
}

/// Between blocks of two sizes the pieces move that lie in one block of each side.
#[test]
fn blocks_of_other_sizes() {
    for (model, from, to, tokens) in [
        // 0 to 199, up to the end of the smaller block.
        ("twelve", "bs64", "bs16", 208),
        ("twelve", "bs16", "bs64", 208),
        // 199 is in 192..240 and in 192..224.
        ("twelve", "tp2 bs48", "tp3 bs32", 224),
        // 136 to 199: from 128 in either size.
        ("windowed", "bs64", "bs16", 208 - 128),
        ("windowed", "tp2 bs16", "bs64", 208 - 128),
        ("windowed", "tp2 bs48", "tp3 bs32", 224 - 128),
        ("windowed", "bs64", "bs64 tp2", 256 - 128),
    ] {
        let bytes = hand_over(model, 200, from, to);
        assert_eq!(bytes, tokens * TOKEN_BYTES, "{model} {from} → {to}");
    }
}

/// Ranks that keep the same bytes share the reads of fewer readers, and each of more readers
/// reads one. Whoever is read less than others frees its blocks all the same.
#[test]
fn ranks_that_keep_the_same_bytes() {
    // MLA: 61 layers of 512 + 64 numbers of 2 bytes. 7 blocks of 16 tokens.
    let mla = 7 * 16 * 61 * (512 + 64) * 2;
    // Two heads of 4 layers.
    let heads = 7 * 16 * 4 * 2 * (64 + 64) * 2;
    for (model, from, to, expected) in [
        ("DeepSeek-V3", "tp1", "tp2", 2 * mla),
        ("DeepSeek-V3", "tp2", "tp1", mla),
        ("two", "tp8", "tp1", heads),
        ("two", "tp4", "tp2", heads),
        ("two", "tp2", "tp4", 2 * heads),
    ] {
        assert_eq!(hand_over(model, 100, from, to), expected, "{model} {from} → {to}");
    }
    // Of one block, or none, some of four ranks that could be read have nothing to give.
    assert_eq!(hand_over("two", 10, "tp8", "tp1"), heads / 7);
    assert_eq!(hand_over("two", 1, "tp8", "tp1"), 0);
}

/// Beside keys and values, states move between ranks: once, each to whoever keeps its channels.
#[test]
fn layers_that_keep_states() {
    let alone = hand_over(HYBRID, 100, "tp1", "tp1");
    for (from, to) in [
        ("tp1", "tp2"),
        ("tp2", "tp1"),
        ("pp2", "tp2"),
        ("tp2", "tp4 pp2"),
        ("tp2 cp2", "tp1"),
        ("tp1", "tp2 cp2"),
        ("tp4 cp2", "tp2 cp2"),
    ] {
        assert_eq!(hand_over(HYBRID, 100, from, to), alone, "{from} → {to}");
    }
}

#[test]
fn shapes_from_files() {
    let folder = folder();
    write(&folder, "twelve.json", FULL);
    write(&folder, "p.json", r#"{"tensor": 2}"#);
    write(&folder, "d.json", r#"{"tensor": 3, "block_size": 32, "order": "tokens_outside"}"#);
    let shapes = ["--from", "p.json", "--to", "d.json"];
    let arguments = ["handoff", "twelve.json", "--tokens", "1000", "--requests", "2"];
    let said = run(folder.path(), &[&arguments[..], &shapes].concat());
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    for line in [
        "llama · 1,000 tokens · prefill 2 ranks, blocks of 64 · decode 3 ranks, blocks of 32 · 5 \
         processes",
        "handed over 2 requests, every byte checked",
        "left at all prefill ranks 0 blocks, 0 leases, 0 claims, 0 receives",
        "left at all decode ranks 0 blocks, 0 leases, 0 claims, 0 receives",
    ] {
        assert!(words(&said.stdout).any(|found| found == line), "{line}\n{}", said.stdout);
    }
    let both = [&arguments[..], &shapes, &["--decode-tp", "2"]].concat();
    let said = run(folder.path(), &both);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.starts_with("error: the argument '--"), "{}", said.stderr);
    assert!(said.stderr.contains("cannot be used with"), "{}", said.stderr);
}

/// Many at once in small pools: every rank gives its blocks in the same order, so all are served.
#[test]
fn a_trace_between_several_ranks() {
    let folder = folder();
    write(&folder, "twelve.json", FULL);
    let line = json!({ "timestamp": 0, "input_length": 300, "output_length": 1 });
    write(&folder, "trace.jsonl", &format!("{line}\n").repeat(40));
    // A rank's share of the pool holds one request, or two.
    let arguments = [
        &["replay", "twelve.json", "--pool", "9MiB", "--block-size", "16", "--trace"][..],
        &["trace.jsonl", "--json", "--speed", "10", "--prefill-tp", "3", "--decode-tp", "2"],
    ];
    let report = run(folder.path(), &arguments.concat()).json();
    assert_eq!((&report["requests"], &report["skipped"]), (&40.into(), &json!([])));
    assert_eq!(report["bytes"], 40 * 19 * 16 * TOKEN_BYTES);
    nothing_left(&report);
    let peak = |side: &str| report["accounts"][side]["peak_resident_bytes"].as_u64().unwrap();
    assert!(peak("prefill") < 64 << 20 && peak("decode") < 64 << 20);
}

/// What is wrong is said before any process is started: no port is listened on.
#[test]
fn engines_that_cannot_be() {
    let folder = folder();
    write(&folder, "twelve.json", FULL);
    for (from, to, code, error, help) in [
        (
            "tp4 cp4",
            "tp2 bs32",
            3,
            "layers.0: context parallelism of unequal interleave: the source has blocks of 16 \
             tokens, the target of 32",
            "give both engines blocks of one size (models with states round theirs up, by their \
             share of the heads), or let none share a sequence",
        ),
        (
            "tp5",
            "tp1",
            2,
            "the prefill engine: layers.0: 12 units of keys cannot be shared by 5 ranks",
            "see --prefill-tp, --prefill-pp, --prefill-context and the block sizes, or the same \
             in --from",
        ),
        (
            "tp1",
            "pp5",
            2,
            "the decode engine: pipeline 5 does not go with 4 layers",
            "see --decode-tp, --decode-pp, --decode-context and the block sizes, or the same in \
             --to",
        ),
        (
            "tp12 pp4",
            "tp12 pp2",
            2,
            "engines of 48 and 24 ranks: at most 64 processes in all",
            "use fewer ranks; `kvferry plan` computes engines of any size",
        ),
    ] {
        let mut arguments = arguments("twelve.json", 200, from, to);
        // An address that cannot be listened on would be told first, were anybody to listen.
        arguments.extend(["--listen", "0.0.0.0:1"].map(str::to_owned));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let said = run(folder.path(), &arguments);
        let told: Value = serde_json::from_str(&said.stderr).unwrap();
        assert_eq!(told, json!({ "error": error, "hint": help, "exit_code": code }));
        assert_eq!((said.code, said.stdout.as_str()), (Some(code), ""), "{from} → {to}");
    }
}

#[test]
fn orders_and_ports_that_are_none() {
    let folder = folder();
    write(&folder, "twelve.json", FULL);
    let said = |more: &[&str]| run(folder.path(), &[&["handoff", "twelve.json"], more].concat());
    let order = said(&["--decode-order", "upside_down"]);
    let error = "error: invalid value 'upside_down' for '--decode-order <ORDER>': unknown variant \
                 `upside_down`, expected one of `joint`, `tokens_outside`, `apart`, \
                 `block_outermost`\n";
    assert!(order.stderr.starts_with(error), "{}", order.stderr);
    assert_eq!(order.code, Some(2));
    let port = said(&["--prefill-tp", "2", "--listen", "127.0.0.1:65535"]);
    let error = "error: --listen 127.0.0.1:65535: there is no port for prefill rank 1\n help: give \
                 --listen a smaller port, or 0 to let the system choose\n";
    assert_eq!((port.code, port.stderr.as_str()), (Some(2), error));
}

/// Requests that are never over soon, between so many ranks a side.
fn endless(folder: &tempfile::TempDir, [from, to]: [&str; 2]) -> Running {
    let arguments = ["handoff", "twelve.json", "--requests", "100000000", "--tokens", "300"];
    let ranks = ["--prefill-tp", from, "--decode-tp", to];
    start(folder.path(), &[&arguments[..], &ranks].concat())
}

/// Whichever rank dies, and whenever, one line names it, and no other process stays.
#[test]
fn a_rank_that_is_killed() {
    let folder = folder();
    write(&folder, "twelve.json", FULL);
    for (side, rank, after) in [("prefill", 1, 0), ("prefill", 1, 300), ("decode", 2, 300)] {
        let running = endless(&folder, ["2", "3"]);
        let parent = running.child.id();
        let others: Vec<u32> = (0..2).map(|rank| rank_of(parent, "prefill", rank)).collect();
        let victim = rank_of(parent, side, rank);
        thread::sleep(Duration::from_millis(after));
        let killed = Instant::now();
        kill(victim);
        let said = running.end();
        assert!(killed.elapsed() < Duration::from_secs(10));
        let error = format!("error: {side} rank {rank} is lost: it ended without a word\n");
        assert_eq!((said.stderr.as_str(), said.stdout.as_str()), (error.as_str(), ""));
        assert_eq!(said.code, Some(5));
        wait("the end of the others", || (!others.iter().any(|&id| is_worker(id))).then_some(()));
    }
}

/// One that hangs is named, too: by its silence, or once another rank's reads have failed.
#[test]
fn a_rank_that_hangs() {
    let folder = folder();
    write(&folder, "twelve.json", FULL);
    let hang = |side: &'static str| {
        let running = endless(&folder, ["2", "2"]);
        let hanging = rank_of(running.child.id(), side, 1);
        thread::sleep(Duration::from_millis(300));
        stop(hanging);
        (running, side, hanging)
    };
    for (running, side, hanging) in ["prefill", "decode"].map(hang) {
        let said = running.end();
        let error = format!("error: {side} rank 1 does not answer: no word in ");
        assert!(said.stderr.starts_with(&error) && said.stderr.lines().count() == 1, "{said:?}");
        assert_eq!((said.code, said.stdout.as_str()), (Some(5), ""));
        wait("its end", || (!is_worker(hanging)).then_some(()));
    }
}

/// Ranks whose parent is gone have nobody to serve.
#[test]
fn no_rank_outlives_the_parent() {
    let folder = folder();
    write(&folder, "twelve.json", FULL);
    let running = endless(&folder, ["2", "2"]);
    let parent = running.child.id();
    let all = [("prefill", 0), ("prefill", 1), ("decode", 0), ("decode", 1)];
    let all = all.map(|(side, rank)| rank_of(parent, side, rank));
    thread::sleep(Duration::from_millis(300));
    kill(parent);
    wait("the end of all ranks", || (!all.iter().any(|&id| is_worker(id))).then_some(()));
    assert_eq!(running.end().code, None);
}
