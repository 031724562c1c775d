//! The block pool of one engine and what lies in its ranks' memories.

use std::rc::Rc;
use std::sync::Arc;

use crate::BlockPool;

/// What one rank of P wrote into one block: which prefill, and which part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// Number of the prefill; 0 in a block that nobody owns.
    pub(crate) write: u32,
    pub(crate) group: usize,
    /// Number of the block in its sequence.
    pub(crate) block: u32,
    pub(crate) rank: usize,
}

/// What one rank of P has of one block.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) tag: Tag,
    /// The keys and values of its tokens, in a sequence that the toy model runs on.
    pub(crate) numbers: Option<Rc<[f64]>>,
}

/// A block is painted over when it is given back: whoever reads it later shows.
const PAINT: Cell = Cell { tag: Tag { write: 0, group: 0, block: 0, rank: 0 }, numbers: None };

/// A block that another owner has, or nobody.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotOwned {
    pub(crate) block: u32,
}

#[derive(Debug)]
pub(crate) struct Memory {
    pool: BlockPool,
    /// Who owns each block; 0 is nobody.
    owners: Vec<u32>,
    /// Of each rank, so many cells a block as it has sources.
    cells: Vec<Vec<Cell>>,
    parts: Vec<usize>,
}

impl Memory {
    /// `parts`: of each rank, in how many parts its blocks are filled.
    pub(crate) fn new(blocks: u32, parts: &[usize], seed: u64) -> Self {
        let count = blocks as usize;
        let cells = parts.iter().map(|parts| vec![PAINT; count * parts]).collect();
        let pool = BlockPool::new(blocks, seed);
        Self { pool, owners: vec![0; count], cells, parts: parts.to_vec() }
    }

    pub(crate) fn free(&self) -> usize {
        self.pool.free()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.pool.capacity()
    }

    /// One list of blocks for each number, or nothing while there are too few.
    pub(crate) fn take(&mut self, counts: &[usize], owner: u32) -> Option<Vec<Arc<[u32]>>> {
        if counts.iter().sum::<usize>() > self.pool.free() {
            return None;
        }
        let lists: Option<Vec<_>> = counts.iter().map(|count| self.pool.take(*count)).collect();
        lists.iter().flatten().flat_map(|list| list.iter()).for_each(|&id| {
            self.owners[id as usize] = owner;
        });
        lists
    }

    /// Gives blocks back and paints over them.
    pub(crate) fn give(&mut self, lists: &[Arc<[u32]>], owner: u32) -> Result<(), NotOwned> {
        for list in lists {
            for &id in list.iter() {
                self.owned(id, owner)?;
                self.owners[id as usize] = 0;
                self.paint(id);
            }
            self.pool.put(list);
        }
        Ok(())
    }

    fn paint(&mut self, id: u32) {
        for (cells, parts) in self.cells.iter_mut().zip(&self.parts) {
            let first = id as usize * parts;
            cells[first..first + parts].fill(PAINT);
        }
    }

    pub(crate) fn owned(&self, id: u32, owner: u32) -> Result<(), NotOwned> {
        if self.owners.get(id as usize) == Some(&owner) {
            Ok(())
        } else {
            Err(NotOwned { block: id })
        }
    }

    pub(crate) fn write(&mut self, rank: usize, id: u32, part: usize, cell: Cell) {
        let at = id as usize * self.parts[rank] + part;
        self.cells[rank][at] = cell;
    }

    pub(crate) fn read(&self, rank: usize, id: u32, part: usize) -> Cell {
        self.cells[rank].get(id as usize * self.parts[rank] + part).cloned().unwrap_or(PAINT)
    }

    /// A worker died, and its memory with it.
    pub(crate) fn lose(&mut self, rank: usize) {
        self.cells[rank].fill(PAINT);
    }
}
