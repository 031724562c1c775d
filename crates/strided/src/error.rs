use std::fmt;

use crate::RegionId;

/// Why a pattern, a list of blocks or a copy is refused.
///
/// Every variant is the fault of whoever described the bytes: a mistaken layout or a hostile
/// peer. Nothing was moved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A pattern of no bytes: an element length or a count of zero.
    Empty,
    /// More than [`MAX_DIMS`](crate::MAX_DIMS) dimensions remain once those that fuse are fused.
    TooManyDims {
        /// How many dimensions are left.
        dims: usize,
    },
    /// Two elements of one pattern share a byte.
    Overlap {
        /// Stride of the offending dimension, in bytes.
        stride: u64,
        /// Bytes that one step of it spans.
        extent: u64,
    },
    /// A count, stride or length whose product does not fit 64 bits.
    TooLarge,
    /// A block id outside its region.
    UnknownBlock {
        /// The region that was addressed.
        region: RegionId,
        /// The id that it does not have.
        id: u32,
        /// How many blocks it has.
        count: u32,
    },
    /// A pattern that reaches beyond the end of its block.
    BeyondBlock {
        /// The region that was addressed.
        region: RegionId,
        /// First byte after the pattern, within the block.
        end: u64,
        /// Bytes from one block to the next.
        block_stride: u64,
    },
    /// Source and target list different numbers of blocks.
    BlockCounts {
        /// Blocks of the source.
        source: usize,
        /// Blocks of the target.
        target: usize,
    },
    /// Source and target pattern carry different numbers of bytes.
    ByteCounts {
        /// Bytes a block of the source gives.
        source: u64,
        /// Bytes a block of the target takes.
        target: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a pattern must cover at least one byte"),
            Self::TooManyDims { dims } => {
                write!(f, "a pattern has at most {} dimensions, not {dims}", crate::MAX_DIMS)
            }
            Self::Overlap { stride, extent } => {
                write!(f, "elements overlap: a stride of {stride} bytes steps over {extent} bytes")
            }
            Self::TooLarge => f.write_str("the byte count does not fit 64 bits"),
            Self::UnknownBlock { region, id, count } => {
                write!(f, "block {id} is outside region {region}, which has {count} blocks")
            }
            Self::BeyondBlock { region, end, block_stride } => write!(
                f,
                "a pattern of region {region} ends at byte {end} of a block of {block_stride} bytes"
            ),
            Self::BlockCounts { source, target } => {
                write!(f, "the source lists {source} blocks, the target {target}")
            }
            Self::ByteCounts { source, target } => {
                write!(f, "the source gives {source} bytes a block, the target takes {target}")
            }
        }
    }
}

impl std::error::Error for Error {}
