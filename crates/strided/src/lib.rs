//! Which bytes: the vocabulary that the planner writes and every mover executes.
//!
//! A paged KV cache is a set of [`Region`]s. A region is affine: block `id` starts at
//! `id × block stride`, so a pool of a million blocks is described by two numbers. A
//! [`Pattern`] walks *inside* one block (heads, tokens, K and V are its dimensions), and
//! [`Blocks`] is that walk repeated over a list of block ids. A [`BlockCopy`] pairs the
//! blocks of a source with those of a target, ids one to one and byte for byte.
//!
//! Everything here is an offset. Addresses are bound later, at registration, by the mover
//! that owns the memory; this crate does no I/O and knows no model.
//!
//! ```
//! use strided::{BlockCopy, Blocks, Pattern, RegionId};
//!
//! # fn main() -> Result<(), strided::Error> {
//! // Two pages of 4 KiB, from blocks 7 and 9 of the source to blocks 1 and 2 of the target.
//! let page = Pattern::contiguous(0, 4096)?;
//! let source = Blocks::new(RegionId(0), [7, 9], page)?;
//! let target = Blocks::new(RegionId(0), [1, 2], page)?;
//! let copy = BlockCopy::new(source, target)?;
//! assert_eq!(copy.bytes(), 8192);
//! assert_eq!(copy.ranges(4096, 4096).count(), 2);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod blocks;
mod copy;
mod error;
mod merge;
mod pattern;
mod region;
mod walk;

pub use blocks::Blocks;
pub use copy::{BlockCopy, RangePair, RangePairs};
pub use error::Error;
pub use merge::{MergeRuns, Merged};
pub use pattern::{Dim, MAX_DIMS, Pattern};
pub use region::{Region, RegionId};
pub use walk::{Range, Walk};
