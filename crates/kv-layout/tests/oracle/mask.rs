//! Attention masks, token by token.

use kv_layout::Kind;

/// Whether the query at `query` sees the key at `key`.
fn sees(kind: Kind, query: u64, key: u64) -> bool {
    if key > query {
        return false;
    }
    match kind {
        Kind::Full | Kind::Mla => true,
        Kind::SlidingWindow { window } => query - key < u64::from(window),
        Kind::ChunkedLocal { chunk } => query / u64::from(chunk) == key / u64::from(chunk),
        _ => false,
    }
}

/// Which of the tokens before `resume_at` some query at `resume_at` or later sees.
pub fn visible(kind: Kind, resume_at: u64) -> Vec<bool> {
    // Later queries only see less of the past; a few of them are asked all the same.
    let queries = resume_at..resume_at + 20;
    let seen = |key| queries.clone().any(|query| sees(kind, query, key));
    (0..resume_at).map(seen).collect()
}

/// The first visible token; `resume_at` where nothing is visible.
pub fn first_visible(kind: Kind, resume_at: u64) -> u64 {
    let seen = visible(kind, resume_at);
    seen.iter().position(|&seen| seen).map_or(resume_at, |at| at as u64)
}
