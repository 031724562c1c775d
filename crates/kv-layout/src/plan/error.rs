use std::fmt;
use std::ops::Range;

use crate::Role;

/// Which of the two engines an error speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The engine that has the KV cache.
    Source,
    /// The engine that wants it.
    Target,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Target => "target",
        })
    }
}

/// Why two engines cannot hand over a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The target wants to resume after tokens that the source has not computed.
    #[error("resume_at: the target resumes at {resume_at}, the source has tokens 0..{valid}")]
    NotValid {
        /// First position that the target computes.
        resume_at: u64,
        /// Tokens that the source has.
        valid: u64,
    },
    /// One block table for each group is needed.
    #[error("tables: the {side} has {groups} groups but {tables} block tables")]
    Tables {
        /// Whose.
        side: Side,
        /// Groups of its layout.
        groups: usize,
        /// Tables given.
        tables: usize,
    },
    /// Block tables of each of the source's ranks are needed.
    #[error("the source has {ranks} ranks, and block tables of {given} were given")]
    Sources {
        /// Ranks that the planner was made for.
        ranks: usize,
        /// Ranks whose tables were given.
        given: usize,
    },
    /// The source does not have a layer that the target keeps.
    #[error("{layer}: the target keeps it, the source has no layer of that name")]
    MissingLayer {
        /// Its name.
        layer: String,
    },
    /// A fact of a layer that must be equal is not.
    #[error("{layer}: {field}: the source has {source_value}, the target {target_value}")]
    Differs {
        /// The layer's name.
        layer: String,
        /// What differs.
        field: String,
        /// The source's value.
        source_value: String,
        /// The target's value.
        target_value: String,
    },
    /// Units of a layer that no rank of the source keeps.
    #[error("{layer}: {role}: no rank of the source keeps units {units:?}")]
    MissingUnits {
        /// The layer's name.
        layer: String,
        /// Which of its bytes.
        role: Role,
        /// The units, counted over the whole model.
        units: Range<u32>,
    },
    /// A share of the sequence that no rank of the source keeps.
    #[error("{layer}: the source's sequence is shared by {ways}, and rank {rank} is missing")]
    MissingShare {
        /// The layer's name.
        layer: String,
        /// How many ranks share the sequence.
        ways: u32,
        /// The one that is missing.
        rank: u32,
    },
    /// Two layers of one rank have the same name.
    #[error("{layer}: the {side}'s layout has two layers of that name")]
    TwiceNamed {
        /// Whose.
        side: Side,
        /// The name.
        layer: String,
    },
    /// Two layers share their bytes at the target and not at the source.
    #[error("{layer}: it shares the bytes of {other} at the target and not at the source")]
    Shared {
        /// The layer's name.
        layer: String,
        /// The other's.
        other: String,
    },
    /// Two layers share their bytes and differ in what they are or see.
    #[error("{layer}: it shares the bytes of {other} and differs from it in kind or parts")]
    Twins {
        /// The layer's name.
        layer: String,
        /// The other's.
        other: String,
    },
    /// Units that end before they begin.
    #[error("{layer}: units {units:?} of the {side} end before they begin")]
    Backwards {
        /// Whose.
        side: Side,
        /// The layer's name.
        layer: String,
        /// The units.
        units: Range<u32>,
    },
    /// A packing that only its backend knows, and a pair that would have to cut it.
    #[error(
        "{layer}: an opaque page is moved whole or not at all: {field}: the source has \
         {source_value}, the target {target_value}"
    )]
    Opaque {
        /// The layer's name.
        layer: String,
        /// What differs.
        field: &'static str,
        /// The source's value.
        source_value: String,
        /// The target's value.
        target_value: String,
    },
    /// Context parallelism between blocks of different size.
    #[error(
        "{layer}: context parallelism of unequal interleave: the source has blocks of \
         {source_value} tokens, the target of {target_value}"
    )]
    Interleave {
        /// The layer's name.
        layer: String,
        /// Tokens of the source's block.
        source_value: u32,
        /// Tokens of the target's block.
        target_value: u32,
    },
    /// Ranks of one engine that share a sequence in different ways.
    #[error("{layer}: the source's ranks do not agree in how many share a sequence")]
    Context {
        /// The layer's name.
        layer: String,
    },
    /// A recurrent group without its one state.
    #[error("group {group}: the {side} has {states} states, a request has one")]
    States {
        /// Whose.
        side: Side,
        /// Index of the group.
        group: u32,
        /// Blocks of its table.
        states: usize,
    },
    /// A state of another position.
    #[error(
        "group {group}: the {side}'s state has seen {seen} tokens, the target resumes at \
         {resume_at}"
    )]
    StatePosition {
        /// Whose.
        side: Side,
        /// Index of the group.
        group: u32,
        /// Tokens that the state has seen.
        seen: u64,
        /// First position that the target computes.
        resume_at: u64,
    },
    /// The target's rank is not one of its ranks.
    #[error("rank {rank} of {ranks}")]
    Rank {
        /// The rank.
        rank: usize,
        /// How many there are.
        ranks: usize,
    },
    /// A block table does not start where a block starts.
    #[error(
        "group {group}: the {side}'s table starts at token {first_token}, inside a block of {block_size}"
    )]
    Misaligned {
        /// Whose.
        side: Side,
        /// Index of the group.
        group: u32,
        /// Where the table starts.
        first_token: u64,
        /// Tokens per block.
        block_size: u32,
    },
    /// A block that is needed is not in the table.
    #[error(
        "group {group}: tokens {wanted_start}..{wanted_end} are needed, the {side}'s table holds \
         {held_start}..{held_end}"
    )]
    NotHeld {
        /// Whose.
        side: Side,
        /// Index of the group.
        group: u32,
        /// First token needed.
        wanted_start: u64,
        /// Token after the last one needed.
        wanted_end: u64,
        /// First token of the table.
        held_start: u64,
        /// Token after the last one of the table.
        held_end: u64,
    },
    /// A layout that contradicts itself.
    #[error("{layer}: {field} {value} is not in the {side}'s layout")]
    Layout {
        /// Whose.
        side: Side,
        /// The layer's name.
        layer: String,
        /// What is missing.
        field: &'static str,
        /// Its index.
        value: u32,
    },
    /// A layer whose bytes or blocks lie outside their region.
    #[error("{layer}: the {side}'s layout: {why}")]
    Bytes {
        /// Whose.
        side: Side,
        /// The layer's name.
        layer: String,
        /// What is wrong.
        why: strided::Error,
    },
    /// A part that no pattern can describe.
    #[error(transparent)]
    Pattern(#[from] strided::Error),
}

impl PlanError {
    /// Whether both engines are sound and only this pair of shapes cannot exchange a KV cache.
    /// Each of these limits has a page in `docs/limits`.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Opaque { .. } | Self::Interleave { .. })
    }

    /// Refuses two values that must be equal.
    pub(super) fn differs<T: PartialEq + ToString>(
        layer: &str,
        field: impl fmt::Display,
        source: T,
        target: T,
    ) -> Result<(), Self> {
        if source == target {
            return Ok(());
        }
        Err(Self::Differs {
            layer: layer.to_owned(),
            field: field.to_string(),
            source_value: source.to_string(),
            target_value: target.to_string(),
        })
    }
}
