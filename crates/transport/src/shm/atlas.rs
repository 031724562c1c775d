use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use strided::{Blocks, Range, Region, RegionId};

use super::MAX_REGIONS;
use super::input::Input;
use super::mapping::Mapping;
use super::show::{self, Show};
use crate::TransferError;
use crate::error::broken;
use crate::scatter::{Ground, Scatter};

/// Memory of a source, as one registration of it.
pub(super) struct Place {
    /// In the source's process.
    base: u64,
    len: u64,
    mapping: Option<Mapping>,
}

/// A region of a source.
pub(super) struct Plot {
    place: Arc<Place>,
    offset: u64,
    region: Region,
}

/// How the bytes of a place are had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// They are mapped here: they are copied.
    Mapped,
    /// The kernel copies them out of the other process.
    Foreign,
}

/// Contiguous bytes of a place, proven to lie inside it: an address of this process where they
/// are mapped, and else one of the source's.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) way: Way,
    pub(super) ptr: *mut u8,
    pub(super) len: usize,
}

impl Plot {
    /// A region that fills memory which only the source has.
    pub(super) fn foreign(base: u64, len: u64, region: Region) -> Self {
        let place = Arc::new(Place { base, len, mapping: None });
        Self { place, offset: 0, region }
    }

    /// A region that fills a file, if that can be mapped.
    pub(super) fn mapped(file: &OwnedFd, len: u64, region: Region) -> Option<Self> {
        let mapping = Some(Mapping::new(file, len).ok()?);
        Some(Self { place: Arc::new(Place { base: 0, len, mapping }), offset: 0, region })
    }
}

impl Ground for Plot {
    type Run<'a> = Run;

    fn block_stride(&self) -> u64 {
        self.region.block_stride
    }

    fn run(&self, range: Range) -> Option<Run> {
        let offset = self.offset.checked_add(range.offset)?;
        let inside = offset.checked_add(range.len)? <= self.place.len;
        let len = usize::try_from(range.len).ok().filter(|_| inside)?;
        Some(match &self.place.mapping {
            Some(mapping) => Run { way: Way::Mapped, ptr: mapping.address(offset), len },
            None => {
                let address = usize::try_from(self.place.base.checked_add(offset)?).ok()?;
                let ptr = std::ptr::without_provenance_mut(address);
                Run { way: Way::Foreign, ptr, len }
            }
        })
    }
}

/// What a reader knows of a source's memory.
#[derive(Default)]
pub(super) struct Atlas {
    /// Which regions each registration has.
    shown: HashMap<u64, Vec<RegionId>>,
    plots: HashMap<RegionId, Arc<Plot>>,
    /// Some of it is not mapped here.
    foreign: bool,
}

impl Atlas {
    /// Whether there is something, and all of it is mapped here.
    pub(super) fn is_mapped(&self) -> bool {
        !self.shown.is_empty() && !self.foreign
    }

    /// Takes in a registration, as it came. Says whether it is mapped here.
    pub(super) fn take_in(
        &mut self,
        generation: u64,
        body: &[u8],
        input: &mut Input,
    ) -> Result<bool, TransferError> {
        let show = show::decode(body).ok_or(broken("a malformed registration"))?;
        let file = if show.shared { Some(input.file()?) } else { None };
        self.show(generation, &show, file.as_ref())
    }

    fn show(
        &mut self,
        generation: u64,
        show: &Show,
        file: Option<&OwnedFd>,
    ) -> Result<bool, TransferError> {
        let known = self.plots.len() + self.shown.len();
        if known + show.regions.len() >= MAX_REGIONS {
            return Err(broken("more registrations than the protocol allows"));
        }
        let mapping = file.and_then(|file| match Mapping::new(file, show.len) {
            Ok(mapping) => Some(mapping),
            Err(why) => {
                tracing::warn!(%why, "cannot map a source's memory: it is read across processes");
                None
            }
        });
        let mapped = mapping.is_some() || show.regions.is_empty();
        self.foreign |= !mapped;
        let place = Arc::new(Place { base: show.base, len: show.len, mapping });
        for &(id, offset, region) in &show.regions {
            let plot = Plot { place: Arc::clone(&place), offset, region };
            if self.plots.insert(id, Arc::new(plot)).is_some() {
                return Err(broken("a region for the second time"));
            }
        }
        let regions = show.regions.iter().map(|(id, ..)| *id).collect();
        match self.shown.insert(generation, regions) {
            None => Ok(mapped),
            Some(_) => Err(broken("a registration for the second time")),
        }
    }

    /// Forgets a registration: it is unmapped when nothing reads it, which is at once if the
    /// source keeps to its own rules.
    pub(super) fn withdraw(&mut self, generation: u64) -> Result<(), TransferError> {
        let regions = self.shown.remove(&generation);
        for region in regions.ok_or(broken("the end of a registration that was not shown"))? {
            self.plots.remove(&region);
        }
        Ok(())
    }

    /// Where blocks lie; `None` if they are not in the source's memory.
    pub(super) fn find(&self, blocks: &[Blocks]) -> Option<Scatter<Plot>> {
        let mut parts = Vec::with_capacity(blocks.len());
        for blocks in blocks {
            let plot = self.plots.get(&blocks.region())?;
            plot.region.check(blocks).ok()?;
            parts.push((Arc::clone(plot), blocks.clone()));
        }
        Scatter::new(parts)
    }
}
