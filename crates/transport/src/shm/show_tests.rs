use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::memory::{HostMemory, SharedMemory};

fn bound(id: u32, offset: u64, block_stride: u64, block_count: u32) -> BoundRegion {
    BoundRegion { id: RegionId(id), offset, region: Region { block_stride, block_count } }
}

#[test]
fn a_registration_survives_the_wire() {
    let regions = [bound(3, 0, 512, 4), bound(9, 2048, 1, 2048)];
    let host: Arc<dyn Memory> = Arc::new(HostMemory::new(4096).unwrap());
    let shared: Arc<dyn Memory> = Arc::new(SharedMemory::new(4096).unwrap());
    for (memory, is_shared) in [(host, false), (shared, true)] {
        let show = decode(&encode(&*memory, &regions)).unwrap();
        let base = memory.base().as_ptr().addr() as u64;
        assert_eq!((show.base, show.len, show.shared), (base, 4096, is_shared));
        let read: Vec<BoundRegion> = show
            .regions
            .iter()
            .map(|&(id, offset, region)| BoundRegion { id, offset, region })
            .collect();
        assert_eq!(read, regions);
    }
}

#[test]
fn what_reaches_beyond_its_memory_is_refused() {
    let memory = HostMemory::new(4096).unwrap();
    for region in [bound(0, 1, 4096, 1), bound(0, u64::MAX, 1, 1), bound(0, 0, u64::MAX, 2)] {
        assert!(decode(&encode(&memory, &[region])).is_none(), "{region:?}");
    }
    let mut bytes = encode(&memory, &[]);
    bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(decode(&bytes).is_none());
    let mut bytes = encode(&memory, &[]);
    bytes[16] = 2;
    assert!(decode(&bytes).is_none());
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in vec(any::<u8>(), 0..200)) {
        if let Some(show) = decode(&bytes) {
            for (_, offset, region) in show.regions {
                prop_assert!(offset + region.bytes().unwrap() <= show.len);
            }
        }
    }
}
