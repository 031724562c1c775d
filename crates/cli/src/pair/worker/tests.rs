use serde::ser::Error as _;

use super::super::messages::Told;
use super::blocks::filled;
use super::*;

/// A word that cannot be written.
struct Unspeakable;

impl Serialize for Unspeakable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("no words"))
    }
}

fn heard(line: &[u8]) -> FromWorker {
    let text = std::str::from_utf8(line).unwrap();
    assert_eq!(text.find('\n'), Some(text.len() - 1), "one line: {text}");
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_word_that_cannot_be_written_is_a_failure_that_the_parent_hears() {
    assert!(matches!(heard(&line(&FromWorker::Here)), FromWorker::Here));
    let FromWorker::Failed(told) = heard(&line(&Unspeakable)) else { panic!("no failure") };
    let Failure { code, message, hint } = told.into();
    assert_eq!(message, "a word to the parent cannot be written: no words");
    assert_eq!((code, hint), (Code::Failed, None));
}

#[tokio::test]
async fn work_that_panics_or_finds_no_blocks_is_a_failure() {
    assert_eq!(filled(7, || Some(5)).await.unwrap(), 5);
    let none = filled(7, || None::<()>).await.unwrap_err();
    assert_eq!(none.message, "request 7: out of blocks");
    let panicked = filled(7, || -> Option<()> { panic!("a bug") }).await.unwrap_err();
    assert!(panicked.message.contains("request 7: task"), "{}", panicked.message);
    assert!(panicked.message.contains("a bug"), "{}", panicked.message);
    for failure in [none, panicked] {
        assert_eq!(failure.code, Code::Failed);
        assert_eq!(Failure::from(Told::from(failure)).code, Code::Failed);
    }
}

/// 4 layers of 2 heads with 64 numbers of 2 bytes for key and value each.
const MODEL: &str = r#"{
    "model_type": "mistral", "torch_dtype": "bfloat16", "num_hidden_layers": 4,
    "hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2, "sliding_window": 64
}"#;

/// What moves in vain lands where it does no harm: only the count can tell.
#[test]
fn a_token_too_many_or_too_few_is_found_between_blocks_of_any_sizes() {
    let model = kv_layout::Model::from_config(MODEL, "model.json").unwrap();
    let order = kv_layout::PageOrder::Joint;
    // Of 200 tokens, 136 to 198 are read; in pieces of 16 tokens that is 128 to 207.
    for (own, source, tokens) in
        [(16, 16, 80), (64, 16, 80), (16, 64, 80), (64, 64, 128), (32, 48, 96)]
    {
        let engine = sim::Engine::new(&model, own, order, 16 << 20, 0).unwrap();
        let tables = engine.allocate(200, 199).unwrap();
        let token = 4 * 2 * (64 + 64) * 2;
        let inspect = |moved| engine.inspect_pieces(moved, 199, &tables, |_| source).is_ok();
        let right = [tokens - 1, tokens, tokens + 1].map(|tokens| inspect(tokens * token));
        assert_eq!(right, [false, true, false], "{source} → {own}");
    }
}

#[tokio::test]
async fn a_pool_that_was_written_to_is_found_at_the_end() {
    let model = kv_layout::Model::from_config(MODEL, "model.json").unwrap();
    let order = kv_layout::PageOrder::Joint;
    let engine = Arc::new(sim::Engine::new(&model, 16, order, 1 << 20, 0).unwrap());
    let blocks = Blocks::new(Arc::clone(&engine));
    blocks.settle().await.unwrap();
    let tables = engine.allocate(40, 39).unwrap();
    engine.prefill(0, 40, &tables);
    engine.free(&tables);
    assert_eq!(blocks.settle().await.unwrap_err().code, Code::Bytes);
}
