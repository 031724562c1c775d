//! What a model keeps for each token, where an engine puts it, and what a hand-off must move.
//!
//! The way through this crate, and of a hand-off:
//!
//! 1. [`Model`]: a Hugging Face `config.json` says which [`Layer`]s keep something and how far
//!    back a query sees in each ([`Kind`]).
//! 2. [`Grouping`]: layers that share a block table form a KV cache group; groups share memory
//!    slot by slot (vLLM's rules).
//! 3. [`EngineShape`] → [`CacheLayout`]: who keeps which layers and heads, and where each
//!    layer's pages lie in a rank's regions.
//! 4. [`plan`]: pairs the ranks of two engines by layer name, token range and head range, and
//!    says what to copy.
//!
//! No I/O, no clocks, no iteration order of hash maps: the same input gives the same plan.

#![forbid(unsafe_code)]

pub mod baseline;
pub mod config;
mod group;
mod layer;
mod layout;
mod place;
mod plan;
mod restart;
mod shape;
mod table;

pub use config::{ConfigError, Model};
pub use group::{Group, GroupError, Grouping};
pub use layer::{DType, Kind, Layer, LayerPart, Recurrence, Role};
pub use layout::{
    BlockTable, CacheLayout, ContextShare, GroupLayout, Overlap, Part, PlacedLayer, Tile,
};
pub use place::{PageOrder, Placement, Shard};
pub use plan::{Holding, Plan, PlanError, Planner, Side, Span, Target, plan, readers};
pub use restart::{Loaded, restart_at};
pub use shape::{EngineShape, RankShape, ShapeError};
pub use table::{Kept, kept};
