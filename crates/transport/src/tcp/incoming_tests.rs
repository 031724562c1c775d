use std::time::Duration;

use strided::{Blocks, Pattern, Region, RegionId};

use super::*;
use crate::memory::HostMemory;
use crate::portion::PORTION;
use crate::registry::Registry;
use crate::{BoundRegion, Memory};

/// Portions of the longest transfer.
const MOST: u32 = 6;

/// What is heard on one of the sockets.
#[derive(Clone, Copy)]
enum Heard {
    /// A portion begins, or, the second time, is in its place.
    Portion(u64),
    End,
}

/// Transfers of 1 to [`MOST`] portions, the last of each a short one.
fn targets() -> Vec<Arc<Scatter>> {
    let region = Region { block_stride: u64::from(PORTION), block_count: MOST };
    let len = usize::try_from(region.bytes().unwrap()).unwrap();
    let memory: Arc<dyn Memory> = Arc::new(HostMemory::new(len).unwrap());
    let mut registry = Registry::default();
    let bound = BoundRegion { id: RegionId(0), offset: 0, region };
    registry.register(&memory, &[bound]).unwrap();
    let target = |count: u32| {
        let whole = |ids: Vec<u32>, len: u32| {
            let pattern = Pattern::contiguous(0, u64::from(len)).unwrap();
            let blocks = Blocks::new(RegionId(0), ids, pattern).unwrap();
            (registry.bind(&blocks).unwrap(), blocks)
        };
        let parts = [whole((0..count - 1).collect(), PORTION), whole(vec![count - 1], 1000)];
        Arc::new(Scatter::new(parts).unwrap())
    };
    (1..=MOST).map(target).collect()
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn play(seed: u64, targets: &[Arc<Scatter>]) {
    let mut state = seed;
    let mut below = |limit: usize| usize::try_from(random(&mut state) % limit as u64).unwrap();
    let count = 1 + below(targets.len());
    let target = Arc::clone(&targets[count - 1]);
    let deadline = Instant::now() + Duration::from_secs(3600);
    let incoming = Incoming::new(TransferId(1), Arc::clone(&target), deadline, 0);
    let both = (0..count as u64).flat_map(|index| [Heard::Portion(index); 2]);
    let mut heard: Vec<Heard> = both.chain([Heard::End]).collect();
    let (mut begun, mut arrived, mut is_said) = (0_u64, 0, false);
    while !heard.is_empty() {
        let outcome = match heard.swap_remove(below(heard.len())) {
            Heard::Portion(index) if begun & (1 << index) == 0 => {
                begun |= 1 << index;
                let len = Portion::nth(&target, index).unwrap().len();
                incoming.begin(index, len).unwrap();
                None
            }
            Heard::Portion(_) => {
                arrived += 1;
                incoming.arrived()
            }
            Heard::End => {
                is_said = true;
                incoming.end(count as u64, Status::Done).unwrap()
            }
        };
        let all = is_said && arrived == count;
        assert_eq!(outcome, all.then_some(Outcome::Done), "seed {seed}: {arrived} of {count}");
    }
}

/// Report R91: the word that all was sent overtook what was sent.
#[test]
fn r91_a_transfer_is_done_when_its_last_portion_is_in_place() {
    let targets = targets();
    (0..10_000).for_each(|seed| play(seed, &targets));
}
