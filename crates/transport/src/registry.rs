use std::collections::HashMap;
use std::sync::Arc;

use strided::{Blocks, Range, Region, RegionId};

use crate::memory::Slice;
use crate::scatter::Ground;
use crate::{BoundRegion, GrantError, Memory, RegisterError, Registration, SubmitErrorKind};

/// A registered region with its memory; proven to lie inside it.
pub(crate) struct Bound {
    memory: Arc<dyn Memory>,
    offset: u64,
    region: Region,
    registration: Registration,
}

impl Bound {
    fn new(
        memory: &Arc<dyn Memory>,
        bound: &BoundRegion,
        registration: Registration,
    ) -> Result<Self, RegisterError> {
        let len = u64::try_from(memory.len()).unwrap_or(u64::MAX);
        let bytes = bound.region.bytes().unwrap_or(u64::MAX);
        let end = bound.offset.saturating_add(bytes);
        if end > len {
            return Err(RegisterError::OutOfBounds { region: bound.id, end, len });
        }
        let memory = Arc::clone(memory);
        Ok(Self { memory, offset: bound.offset, region: bound.region, registration })
    }

    pub(crate) fn registration(&self) -> Registration {
        self.registration
    }
}

impl Ground for Bound {
    type Run<'a> = Slice<'a>;

    fn block_stride(&self) -> u64 {
        self.region.block_stride
    }

    fn run(&self, range: Range) -> Option<Slice<'_>> {
        Slice::of(&*self.memory, self.offset.checked_add(range.offset)?, range.len)
    }
}

/// Why blocks could not be bound to memory.
#[derive(Debug)]
pub(crate) enum UnboundBlocks {
    UnknownRegion(RegionId),
    Blocks(strided::Error),
}

impl From<UnboundBlocks> for GrantError {
    fn from(error: UnboundBlocks) -> Self {
        match error {
            UnboundBlocks::UnknownRegion(region) => Self::UnknownRegion { region },
            UnboundBlocks::Blocks(error) => Self::Blocks(error),
        }
    }
}

impl From<UnboundBlocks> for SubmitErrorKind {
    fn from(error: UnboundBlocks) -> Self {
        match error {
            UnboundBlocks::UnknownRegion(region) => Self::UnknownRegion { region },
            UnboundBlocks::Blocks(error) => Self::Blocks(error),
        }
    }
}

/// The registered regions of one endpoint.
#[derive(Default)]
pub(crate) struct Registry {
    regions: HashMap<RegionId, Arc<Bound>>,
    registrations: HashMap<Registration, Vec<RegionId>>,
    generation: u64,
}

impl Registry {
    pub(crate) fn register(
        &mut self,
        memory: &Arc<dyn Memory>,
        regions: &[BoundRegion],
    ) -> Result<Registration, RegisterError> {
        let registration = Registration { generation: self.generation + 1 };
        let mut new = HashMap::with_capacity(regions.len());
        for region in regions {
            let bound = Arc::new(Bound::new(memory, region, registration)?);
            if self.regions.contains_key(&region.id) || new.insert(region.id, bound).is_some() {
                return Err(RegisterError::Taken { region: region.id });
            }
        }
        self.generation += 1;
        self.registrations.insert(registration, new.keys().copied().collect());
        self.regions.extend(new);
        Ok(registration)
    }

    /// Forgets a registration that the caller has seen to be unused.
    pub(crate) fn deregister(&mut self, registration: Registration) -> Result<(), RegisterError> {
        let regions = self.registrations.remove(&registration).ok_or(RegisterError::Unknown)?;
        for region in regions {
            self.regions.remove(&region);
        }
        Ok(())
    }

    /// Checks that `blocks` lie inside a registered region, and names its memory.
    pub(crate) fn bind(&self, blocks: &Blocks) -> Result<Arc<Bound>, UnboundBlocks> {
        let region = blocks.region();
        let bound = self.regions.get(&region).ok_or(UnboundBlocks::UnknownRegion(region))?;
        bound.region.check(blocks).map_err(UnboundBlocks::Blocks)?;
        Ok(Arc::clone(bound))
    }
}
