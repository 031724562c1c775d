use serde::ser::Error as _;

use super::*;

/// A word that cannot be written.
struct Unspeakable;

impl Serialize for Unspeakable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("no words"))
    }
}

fn heard(line: &[u8]) -> FromPrefill {
    let text = std::str::from_utf8(line).unwrap();
    assert_eq!(text.find('\n'), Some(text.len() - 1), "one line: {text}");
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_word_that_cannot_be_written_is_a_failure_that_the_parent_hears() {
    assert!(matches!(heard(&line(&FromPrefill::Ready)), FromPrefill::Ready));
    let FromPrefill::Failed { message, hint: None, exit_code: 1 } = heard(&line(&Unspeakable))
    else {
        panic!("no failure")
    };
    assert_eq!(message, "a word to the parent cannot be written: no words");
}

#[tokio::test]
async fn work_that_panics_or_finds_no_blocks_is_a_failure() {
    assert_eq!(filled(7, || Some(5)).await.unwrap(), 5);
    let none = filled(7, || None::<()>).await.unwrap_err();
    assert_eq!(none.message, "the prefill worker's request 7: out of blocks");
    let panicked = filled(7, || -> Option<()> { panic!("a bug") }).await.unwrap_err();
    assert!(panicked.message.contains("request 7: task"), "{}", panicked.message);
    assert!(panicked.message.contains("a bug"), "{}", panicked.message);
    for failure in [none, panicked] {
        assert_eq!(failure.code, Code::Failed);
        assert!(matches!(failed(failure), FromPrefill::Failed { exit_code: 1, .. }));
    }
}
