//! What shared memory would give, measured before it is chosen.

use std::sync::Arc;
use std::time::{Duration, Instant};

use strided::{Blocks, Pattern, Region, RegionId};

use super::address::Address;
use super::atlas::Plot;
use super::copy::{Fault, Hands};
use super::frame::{ToReader, ToSource};
use super::greet::Fresh;
use super::open::{Opened, Target, no_look, open};
use super::outbox::Outbox;
use super::unusable::Unusable;
use super::{MAX_PROBE_BYTES, ShmConfig};
use crate::error::broken;
use crate::memory::HostMemory;
use crate::portion::Portion;
use crate::registry::{Bound, Registry};
use crate::scatter::Scatter;
use crate::{BoundRegion, Card, Memory};

/// Bytes of the blocks that are measured with: those of a usual layout.
const BLOCK: u64 = 128 << 10;

/// The best of so many rounds counts: the first one meets cold memory.
const ROUNDS: u32 = 4;

/// What a source's memory can be read with, and how fast one thread does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offer {
    /// Bytes a second out of memory that both sides map, if it can be mapped here.
    pub mapped: Option<u64>,
    /// Bytes a second out of memory that only the source has, if this process may read it.
    pub foreign: Option<u64>,
}

impl Offer {
    /// The slower of the ways that there are: what any memory can be read with.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.foreign.or(self.mapped).unwrap_or(0)
    }
}

/// Connects to a source, does all that [`connect`](crate::Endpoint::connect) would do, and
/// measures. It blocks for twice `hello_timeout` at most: call it from a thread that may wait.
///
/// # Errors
/// [`Unusable`]: why nothing can be read.
pub fn probe(card: &Card, config: &ShmConfig) -> Result<Offer, Unusable> {
    config.check().map_err(Unusable::system("use these settings"))?;
    let target = Target { address: Address::of(card)?, agent: card.agent };
    let outbox = Outbox::new().map_err(Unusable::system("make an eventfd"))?;
    let probed = open(&target, config, &outbox, &no_look).and_then(|mut opened| {
        outbox.open();
        outbox.push(ToSource::Probe.encode().to_vec(), None);
        measure(&mut opened, &outbox, Instant::now() + config.hello_timeout)
    });
    outbox.close();
    probed
}

fn measure(opened: &mut Opened, outbox: &Outbox, deadline: Instant) -> Result<Offer, Unusable> {
    let (base, len) = buffer(opened, outbox, deadline)?;
    let file = opened.input.file()?;
    let foreign = match opened.foreign {
        Ok(()) => Some(Plot::foreign(base, len, region(len))),
        Err(_) => None,
    };
    let mapped = Plot::mapped(&file, len, region(len));
    let rate = |plot: Plot| rate(opened, plot, len);
    Ok(Offer { mapped: mapped.map(rate).transpose()?, foreign: foreign.map(rate).transpose()? })
}

/// Where the source has put what may be measured with.
fn buffer(opened: &mut Opened, outbox: &Outbox, deadline: Instant) -> Result<(u64, u64), Unusable> {
    let socket = Arc::clone(&opened.source.socket);
    let fresh = Fresh { socket: &socket, bell: Some(outbox.bell()), look: &no_look };
    loop {
        while let Some((said, body)) = opened.input.next(ToReader::decode)? {
            match said {
                ToReader::Buffer { address, len } => {
                    let right = (BLOCK..=MAX_PROBE_BYTES).contains(&len)
                        && address.checked_add(len).is_some();
                    return if right { Ok((address, len)) } else { Err(wrong()) };
                }
                ToReader::Show { generation, .. } => {
                    opened.atlas.take_in(generation, &body, &mut opened.input)?;
                }
                // Nothing of it is used here; the connection ends soon.
                ToReader::Withdraw { generation } => opened.atlas.withdraw(generation)?,
                _ => return Err(wrong()),
            }
        }
        opened.wait(&fresh, deadline)?;
    }
}

fn wrong() -> Unusable {
    broken("another answer than a probe's").into()
}

fn region(len: u64) -> Region {
    Region { block_stride: BLOCK, block_count: u32::try_from(len / BLOCK).unwrap_or(1) }
}

fn rate(opened: &Opened, plot: Plot, len: u64) -> Result<u64, Unusable> {
    let region = region(len);
    let page = Pattern::contiguous(0, BLOCK).map_err(|_| wrong())?;
    // Every second block, so that none goes on in the next.
    let ids: Vec<u32> = (0..region.block_count).step_by(2).collect();
    let blocks = Blocks::new(RegionId(0), ids, page).map_err(|_| wrong())?;
    let source = Scatter::new([(Arc::new(plot), blocks.clone())]).ok_or_else(wrong)?;
    let target = Scatter::new([(target(region)?, blocks)]).ok_or_else(wrong)?;
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        copy(opened, &target, &source)?;
        best = best.min(start.elapsed());
    }
    let nanos = best.as_nanos().max(1);
    Ok(u64::try_from(u128::from(source.bytes()) * 1_000_000_000 / nanos).unwrap_or(u64::MAX))
}

fn target(region: Region) -> Result<Arc<Bound>, Unusable> {
    let no_memory = || Unusable::System { what: "map memory", why: "none is left".to_owned() };
    let len = usize::try_from(region.bytes().map_err(|_| wrong())?).map_err(|_| wrong())?;
    let memory: Arc<dyn Memory> =
        Arc::new(HostMemory::new(len).map_err(Unusable::system("map memory"))?);
    let mut registry = Registry::default();
    let bound = BoundRegion { id: RegionId(0), offset: 0, region };
    registry.register(&memory, &[bound]).map_err(|_| no_memory())?;
    let page = Pattern::contiguous(0, BLOCK).map_err(|_| wrong())?;
    let blocks = Blocks::new(RegionId(0), [0], page).map_err(|_| wrong())?;
    registry.bind(&blocks).map_err(|_| no_memory())
}

fn copy(opened: &Opened, target: &Scatter, source: &Scatter<Plot>) -> Result<(), Unusable> {
    let mut hands = Hands::new();
    for index in 0..Portion::count(target) {
        let portions = Portion::nth(target, index).zip(Portion::nth(source, index));
        let (near, far) = portions.ok_or_else(wrong)?;
        let copied = hands.copy(opened.source.process.as_ref(), near, far);
        if let Err(fault) = copied {
            opened.source.is_there()?;
            return Err(match fault {
                Fault::Unmapped => broken("a buffer that is not there").into(),
                Fault::Source(why) => why.into(),
            });
        }
    }
    Ok(opened.source.is_there()?)
}
