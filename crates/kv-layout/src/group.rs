//! KV cache groups and shared regions, by vLLM's rules.
//!
//! Source: vLLM 0.33 `v1/core/kv_cache_planning.py`, `get_kv_cache_groups` and the uniform page
//! size grouping it ends in; restated, not copied.

use crate::{Kind, Layer, Model};

/// Layers that share one block table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What a query sees of its layers.
    pub kind: Kind,
    /// Tokens per block.
    pub block_size: u32,
    /// Indices into [`Model::layers`]; layer `i` of this list keeps its pages in slot `i`.
    pub layers: Vec<usize>,
}

/// All groups of a model. They overlay each other: slot `i` of every group is the same memory,
/// and a block id belongs to one group at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// The groups, in order of their first layer.
    pub groups: Vec<Group>,
    /// Bytes of a page, slot by slot; there are as many slots as the largest group has layers.
    pub slot_bytes: Vec<u64>,
}

/// Why a model's layers cannot be grouped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A block of no tokens.
    #[error("block size 0: a block holds at least one token")]
    NoTokens,
    /// Pages whose sizes cannot be made equal.
    #[error(
        "{layer}: a page of {page} bytes neither divides the largest page of {largest} bytes nor \
         can be padded to it, since it is {kind}"
    )]
    Pages {
        /// The layer.
        layer: String,
        /// Its kind.
        kind: Kind,
        /// Bytes of its page.
        page: u64,
        /// Bytes of the largest page of the model.
        largest: u64,
    },
    /// Blocks too large for the arithmetic.
    #[error("block size {block_size}: its pages would not fit 64 bits")]
    TooLarge {
        /// The block size asked for.
        block_size: u32,
    },
}

impl Grouping {
    /// Groups the layers of `model` for blocks of `block_size` tokens.
    ///
    /// Bytes are those of the layers as given: for one rank, give the rank's share of them.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn new(model: &Model, block_size: u32) -> Result<Self, GroupError> {
        if block_size == 0 {
            return Err(GroupError::NoTokens);
        }
        let too_large = GroupError::TooLarge { block_size };
        let block_size = hybrid_block_size(&model.layers, block_size).ok_or(too_large.clone())?;
        let page = |layer: &Layer| {
            layer.row_bytes().checked_mul(u64::from(layer.kind.tokens_a_block(block_size)))
        };
        let pages: Vec<u64> =
            model.layers.iter().map(page).collect::<Option<_>>().ok_or(too_large)?;
        let grouping = match model.layers.split_first() {
            None => Self { groups: Vec::new(), slot_bytes: Vec::new() },
            Some((first, rest)) if rest.iter().all(|layer| layer.kind == first.kind) => {
                let layers = (0..pages.len()).collect();
                let groups = vec![Group { kind: first.kind, block_size, layers }];
                Self { groups, slot_bytes: pages }
            }
            Some(_) => Self::of_equal_pages(&model.layers, &pages, block_size)?,
        };
        grouping.fits(block_size)
    }

    /// Refuses slots whose sum nobody could add up.
    fn fits(self, block_size: u32) -> Result<Self, GroupError> {
        let sum = self.slot_bytes.iter().try_fold(0_u64, |sum, &page| sum.checked_add(page));
        sum.map(|_| self).ok_or(GroupError::TooLarge { block_size })
    }

    /// Layers of several kinds: all pages are made as large as the largest, and the buckets of
    /// equal layers are cut into groups of like size.
    fn of_equal_pages(
        layers: &[Layer],
        pages: &[u64],
        block_size: u32,
    ) -> Result<Self, GroupError> {
        let largest = pages.iter().copied().max().unwrap_or(0);
        let buckets = buckets(layers);
        let group_size = group_size(&buckets);
        let mut groups = Vec::new();
        for bucket in &buckets {
            let first = bucket[0];
            let block_size = unified_block_size(&layers[first], pages[first], largest, block_size)?;
            let count = bucket.len().div_ceil(group_size);
            for start in 0..count {
                // Strided, not sliced: the stages of a pipeline stay evenly filled.
                let layers_of = bucket.iter().copied().skip(start).step_by(count).collect();
                groups.push(Group { kind: layers[first].kind, block_size, layers: layers_of });
            }
        }
        let slots = groups.iter().map(|group| group.layers.len()).max().unwrap_or(0);
        Ok(Self { groups, slot_bytes: vec![largest; slots] })
    }

    /// Bytes that one block id occupies over all slots.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.slot_bytes.iter().sum()
    }
}

/// Smallest number of tokens that an attention kernel takes.
const KERNEL_TOKENS: u64 = 16;

/// The block size of a model that mixes attention and recurrence: so many tokens that a page of
/// attention is as large as a state, or the block size asked for if that is more. It depends on
/// how the layers are sharded.
///
/// Source: vLLM 0.33 `platforms/interface.py`, the mamba page size rule; restated.
fn hybrid_block_size(layers: &[Layer], block_size: u32) -> Option<u32> {
    let largest = |recurrent: bool| {
        let of_kind = layers.iter().filter(|layer| layer.kind.is_recurrent() == recurrent);
        of_kind.map(Layer::row_bytes).max()
    };
    let (Some(state), Some(token)) = (largest(true), largest(false)) else {
        return Some(block_size);
    };
    let align = KERNEL_TOKENS.max(u64::from(block_size));
    let blocks = state.div_ceil(align.checked_mul(token.max(1))?).max(1);
    let needed = u32::try_from(align.checked_mul(blocks)?).ok()?;
    Some(needed.max(block_size))
}

/// Layers that keep the same, in order of first appearance.
fn buckets(layers: &[Layer]) -> Vec<Vec<usize>> {
    let mut buckets: Vec<Vec<usize>> = Vec::new();
    for (index, layer) in layers.iter().enumerate() {
        match buckets.iter_mut().find(|bucket| same_spec(&layers[bucket[0]], layer)) {
            Some(bucket) => bucket.push(index),
            None => buckets.push(vec![index]),
        }
    }
    buckets
}

fn same_spec(a: &Layer, b: &Layer) -> bool {
    a.kind == b.kind && a.parts == b.parts
}

/// The smallest bucket, unless padding all to the largest wastes less than half of it.
fn group_size(buckets: &[Vec<usize>]) -> usize {
    let smallest = buckets.iter().map(Vec::len).min().unwrap_or(1);
    let largest = buckets.iter().map(Vec::len).max().unwrap_or(1);
    if 2 * largest < 3 * smallest { largest } else { smallest }
}

/// A smaller page takes more tokens per block until it is as large as the largest, or is padded.
fn unified_block_size(
    layer: &Layer,
    page: u64,
    largest: u64,
    block_size: u32,
) -> Result<u32, GroupError> {
    if layer.kind.is_recurrent() {
        return Ok(block_size);
    }
    if page != 0 && largest.is_multiple_of(page) {
        return u32::try_from(largest / page)
            .ok()
            .and_then(|ratio| block_size.checked_mul(ratio))
            .ok_or(GroupError::TooLarge { block_size });
    }
    if layer.kind == Kind::Mla {
        let (layer, kind) = (layer.name.clone(), layer.kind);
        return Err(GroupError::Pages { layer, kind, page, largest });
    }
    Ok(block_size)
}
