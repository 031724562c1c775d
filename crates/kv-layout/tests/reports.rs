//! What users of KV hand-offs ran into, as tests: `rNN_<repository>_<issue>_…`.
//!
//! These are the public reports of layout arithmetic, of windows and prefixes, of unequal tensor
//! parallelism, and of descriptors without end. Each test states the right bytes, not how the reported engine got them
//! wrong. What a report says of anything beyond this crate is not tested here:
//!
//! | report | left out | why |
//! | --- | --- | --- |
//! | R05 vllm#42895 | a refused peer never answers with text from unfilled blocks | `connector`: a plan that is refused has no copies to submit |
//! | R13 sglang#19045 | addresses with bit 63 set, or near the end of the address space | `transport`: a plan holds offsets, addresses are bound at registration |
//! | R18 vllm#37310 | an engine does run one token less | `connector` and the engine: [`kv_layout::Kind::must_stop_early`] says when |
//! | R29 vllm#55178 | padding tokens of a speculative step are not folded into a state | an engine's kernel: the state that arrives is exact, and has seen `resume_at` tokens |
//! | R35 vllm#36958 | the word to free carries the producer's own request id | `connector`: request ids are not known here |
//! | R36 sglang#19043 | the same word twice counts once | `connector`: here readers are sets of ranks, never counts |
//! | R38 vllm#50765 | a refusal within a second of the first contact | `connector`: [`kv_layout::readers`] refuses by the shapes alone |

// Clippy allows a panic in test functions, not in their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation)]

#[path = "reports/blocks.rs"]
mod blocks;
#[path = "golden/kit.rs"]
mod kit;
#[path = "reports/pages.rs"]
mod pages;
#[path = "reports/peers.rs"]
mod peers;
#[path = "reports/tensor.rs"]
mod tensor;
#[path = "reports/windows.rs"]
mod windows;
