//! `kvferry plan` says what the issue's table says.

use crate::common::{folder, root, run};
use expect_test::expect;
use serde_json::{Value, json};

fn plan(model: &str, block_size: u32, tokens: u64) -> Value {
    let model = format!("models/{model}.json");
    let (block_size, tokens) = (block_size.to_string(), tokens.to_string());
    let arguments = ["--json", "plan", &model, "--block-size", &block_size, "--tokens", &tokens];
    run(&root(), &arguments).json()
}

/// Ranges with K and V as one, of: all as full attention, flat hybrid, exact.
fn ranges(plan: &Value, how: &str) -> [u64; 3] {
    ["all_full", "flat_hybrid", "exact"]
        .map(|scheme| plan["schemes"][scheme][how].as_u64().unwrap())
}

#[test]
fn gemma_3_4b_at_4000_tokens() {
    let report = plan("gemma-3-4b-it", 64, 4000);
    assert_eq!(report["resume_at"], 3999);
    assert_eq!(ranges(&report, "ranges_joint"), [2142, 825, 808]);
    assert_eq!(ranges(&report, "ranges_apart"), [4284, 1650, 1616]);
    // A page is 64 tokens × 4 heads × (256 + 256) numbers × 2 bytes: 256 KiB.
    assert_eq!(ranges(&report, "bytes"), [2142, 825, 808].map(|pages| pages * (256 << 10)));
    // With contiguous ids each of 34 layers is one run; K and V apart alternate page by page.
    assert_eq!(report["schemes"]["exact_merged"]["ranges_joint"], 34);
    assert_eq!(report["layers"].as_array().unwrap().len(), 34);
    // 29 windowed layers in groups of at most 5, and 5 full ones.
    assert_eq!(report["groups"].as_array().unwrap().len(), 7);
    assert_eq!(report["regions"].as_array().unwrap().len(), 5);
    let full = json!({
        "kind": "full", "layers": 5, "block_size": 64, "kept": 63, "moved": 63, "first_moved": 0,
    });
    assert_eq!(report["groups"][6], full);
    // The query at 3999 sees keys from 2976 on, in block 46.
    let windowed = json!({
        "kind": "sliding_window", "window": 1024, "layers": 5, "block_size": 64, "kept": 17,
        "moved": 17, "first_moved": 46,
    });
    assert_eq!(report["groups"][0], windowed);
}

#[test]
fn gemma_3_4b_at_the_edges() {
    let report = plan("gemma-3-4b-it", 64, 4031);
    assert_eq!(report["groups"][0]["moved"], 17);
    assert_eq!(ranges(&report, "ranges_joint")[1..], [795, 808]);
    let report = plan("gemma-3-4b-it", 64, 4033);
    assert_eq!(ranges(&report, "ranges_joint"), [2176, 830, 779]);
    assert_eq!(report["groups"][6]["moved"], 63);
    assert_eq!(report["groups"][0]["moved"], 16);
    assert_eq!(report["groups"][0]["first_moved"], 47);
}

#[test]
fn other_models() {
    for (model, block_size, tokens, expected) in [
        ("gemma-3-27b-it", 64, 4000, [3906, 1650, 1514]),
        ("gpt-oss-20b", 64, 4000, [1512, 792, 792]),
        ("gpt-oss-20b", 16, 4000, [6000, 3096, 3096]),
        ("Llama-4-Scout-17B-16E", 64, 20_000, [15_024, 5808, 5808]),
    ] {
        let report = plan(model, block_size, tokens);
        assert_eq!(ranges(&report, "ranges_joint"), expected, "{model} {block_size}");
    }
    for (model, block_size, expected, apart) in [
        ("Llama-3.1-8B", 16, 8000, 16_000),
        ("Llama-3.1-8B", 64, 2016, 4032),
        // MLA has no values: nothing to take apart.
        ("DeepSeek-V3", 64, 3843, 3843),
    ] {
        let report = plan(model, block_size, 4000);
        assert_eq!(report["schemes"]["exact"]["ranges_joint"], expected, "{model} {block_size}");
        assert_eq!(report["schemes"]["exact"]["ranges_apart"], apart, "{model} {block_size}");
    }
}

#[test]
fn the_text_for_people() {
    let arguments = ["plan", "models/gemma-3-4b-it.json", "--tokens", "4,000"];
    let said = run(&root(), &arguments);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    expect![[r#"
        gemma3_text · bf16 · 34 layers that keep something · block size 64
        A prompt of 4,000 tokens; the decode engine computes from token 3,999 on.

        KV cache groups (layers that share a block table)
          group  kind                    layers  tokens a block  blocks kept  moved    which
              0  sliding window of 1024       5              64           17     17  46..=62
              1  sliding window of 1024       5              64           17     17  46..=62
              2  sliding window of 1024       5              64           17     17  46..=62
              3  sliding window of 1024       5              64           17     17  46..=62
              4  sliding window of 1024       5              64           17     17  46..=62
              5  sliding window of 1024       4              64           17     17  46..=62
              6  full attention               5              64           63     63   0..=62

        Shared regions (one slot of every group)
          region       page  layers that share it
           0..=3  256.0 KiB                     7
               4  256.0 KiB                     6

        What moves
                                                   ranges, K and V joint  K and V apart      bytes  of full attention
          all layers as full attention                             2,142          4,284  535.5 MiB            100.0 %
          flat hybrid: every region × every group                    825          1,650  206.2 MiB             38.5 %
          exact: what kvferry moves                                  808          1,616  202.0 MiB             37.7 %
          exact, runs of contiguous ids merged                        34             68  202.0 MiB             37.7 %

    "#]].assert_eq(&said.stdout);
}

/// The rectangles of each row of the map: all blocks of a layer, and those that move.
fn rows(picture: &str) -> Vec<(String, [Bar; 2])> {
    let document = roxmltree::Document::parse(picture).unwrap();
    assert_eq!(document.root_element().tag_name().name(), "svg");
    let row = |group: roxmltree::Node<'_, '_>| {
        let text = group.children().find(|node| node.has_tag_name("text"))?.text()?.trim();
        let layer = text.split_once(" · group ")?.0.to_owned();
        let bars = group.children().filter(|node| node.has_tag_name("rect")).map(Bar::of);
        Some((layer, bars.collect::<Vec<_>>().try_into().ok()?))
    };
    document.descendants().filter(|node| node.has_tag_name("g")).filter_map(row).collect()
}

#[derive(Debug)]
struct Bar {
    x: f64,
    width: f64,
}

impl Bar {
    fn of(node: roxmltree::Node<'_, '_>) -> Self {
        let number = |name| node.attribute(name).unwrap().parse().unwrap();
        Self { x: number("x"), width: number("width") }
    }
}

#[test]
fn the_picture_has_a_row_a_layer() {
    let folder = folder();
    let file = folder.path().join("map.svg");
    let arguments = ["plan", "models/gemma-3-4b-it.json", "--svg", file.to_str().unwrap()];
    assert_eq!(run(&root(), &arguments).code, Some(0));
    let rows = rows(&std::fs::read_to_string(&file).unwrap());
    let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
    let expected: Vec<String> = (0..34).map(|layer| format!("layers.{layer}")).collect();
    assert_eq!(names, expected);
    for (layer, (name, [all, moved])) in rows.iter().enumerate() {
        // Every sixth layer is full; the others move blocks 46 to 62 of 63.
        let (first, count) = if layer % 6 == 5 { (0.0, 63.0) } else { (46.0, 17.0) };
        let cell = all.width / 63.0;
        assert!((moved.x - all.x - first * cell).abs() < 0.01, "{name}: {all:?} {moved:?}");
        assert!((moved.width - count * cell).abs() < 0.01, "{name}: {all:?} {moved:?}");
    }
}

/// Nothing is there before the first token: a state is neither moved nor asked for.
#[test]
fn a_prompt_of_one_token_hands_nothing_over() {
    for model in ["gemma-3-4b-it", "Jamba-v0.1"] {
        let model = format!("models/{model}.json");
        let arguments = ["handoff", &model, "--tokens", "1", "--requests", "1", "--json"];
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_kvferry"))
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{model}");
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(summary["bytes"], 0, "{model}");
    }
}
