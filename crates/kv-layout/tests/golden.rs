//! vLLM's own test values, restated for a planner that pairs tokens instead of list entries.
//!
//! Where a value speaks of descriptors (region × block, numbered), the test says which bytes
//! that descriptor is and that a plan moves exactly these; where it speaks of lists that are
//! trimmed until they are of equal length, the tables of both sides say at which token they
//! start. Where vLLM's value is wrong by the attention mask, the test says so and states the
//! right one.
//!
//! Names: `g01` to `g13` are the families of test values, `m24` the worked example of gemma-3-4b,
//! `m25` the counts of published models, `m27` the boundary at which a prefill engine frees too
//! early.
//!
//! Source: vLLM 0.33 `tests/v1/kv_connector/unit` and the numbers of vllm-project/vllm#35758,
//! restated.

// Clippy allows a panic in test functions, not in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation)]

#[path = "golden/clip.rs"]
mod clip;
#[path = "golden/context.rs"]
mod context;
#[path = "golden/descriptors.rs"]
mod descriptors;
#[path = "golden/kit.rs"]
mod kit;
#[path = "golden/models.rs"]
mod models;
#[path = "golden/refusals.rs"]
mod refusals;
#[path = "golden/shards.rs"]
mod shards;
