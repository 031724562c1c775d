use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn patterns() -> impl Strategy<Value = Pattern> {
    (0_u64..100, 1_u64..50, vec(1_u32..5, 0..4)).prop_map(|(offset, len, counts)| {
        // Each dimension leaves a gap after what the inner ones span, so none of them fuse.
        let mut span = len;
        let mut dims = Vec::new();
        for count in counts {
            let stride = span + 3;
            dims.insert(0, Dim { count, stride });
            span = stride * u64::from(count);
        }
        Pattern::new(offset, &dims, len).unwrap()
    })
}

fn requests() -> impl Strategy<Value = Vec<Blocks>> {
    let lists = vec(vec(any::<u32>(), 0..20), 1..4);
    let blocks = vec((any::<u32>(), any::<prop::sample::Index>(), patterns()), 0..20);
    (lists, blocks).prop_map(|(lists, blocks)| {
        let lists: Vec<Arc<[u32]>> = lists.into_iter().map(Arc::from).collect();
        let blocks = blocks.into_iter().map(|(region, list, pattern)| {
            Blocks::new(RegionId(region), Arc::clone(list.get(&lists)), pattern).unwrap()
        });
        blocks.collect()
    })
}

proptest! {
    #[test]
    fn a_request_survives_the_wire(blocks in requests()) {
        let bytes = encode(blocks.iter()).unwrap();
        prop_assert_eq!(decode(&bytes).unwrap(), blocks);
    }

    #[test]
    fn a_cut_request_is_refused(blocks in requests(), cut in any::<prop::sample::Index>()) {
        let bytes = encode(blocks.iter()).unwrap();
        prop_assert_eq!(decode(&bytes[..cut.index(bytes.len())]), None);
    }

    #[test]
    fn garbage_never_panics(blocks in requests(), at in any::<prop::sample::Index>(), byte: u8) {
        let mut bytes = encode(blocks.iter()).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = decode(&bytes);
    }
}

#[test]
fn shared_lists_travel_once_and_stay_shared() {
    let ids: Arc<[u32]> = (0..1000).collect();
    let page = Pattern::contiguous(0, 4096).unwrap();
    let blocks: Vec<Blocks> = (0..64)
        .map(|region| Blocks::new(RegionId(region), Arc::clone(&ids), page).unwrap())
        .collect();
    let bytes = encode(blocks.iter()).unwrap();
    assert_eq!(bytes.len(), 4 + (4 + 4000) + 4 + 64 * 28);
    let read = decode(&bytes).unwrap();
    assert!(read.iter().all(|blocks| Arc::ptr_eq(blocks.ids(), read[0].ids())));
}

#[test]
fn a_request_beyond_the_limit_is_not_made() {
    let page = Pattern::contiguous(0, 1).unwrap();
    let most = u32::try_from(MAX_REQUEST_BYTES / 4).unwrap();
    let blocks = Blocks::new(RegionId(0), (0..most).collect::<Vec<_>>(), page).unwrap();
    assert_eq!(encode([&blocks].into_iter()), None);
}

#[test]
fn a_count_beyond_what_was_sent_allocates_nothing() {
    assert_eq!(decode(&u32::MAX.to_le_bytes()), None);
}

/// `connector::limits::MAX_LEASE_BLOCKS`, which this crate cannot name.
#[test]
fn a_read_of_the_largest_lease_fits() {
    let page = Pattern::contiguous(0, 4096).unwrap();
    let groups: Vec<Arc<[u32]>> = (0..64).map(|_| (0..2_000_000 / 64).collect()).collect();
    let blocks = (0..4096).map(|region| {
        Blocks::new(RegionId(region), Arc::clone(&groups[region as usize % 64]), page).unwrap()
    });
    let blocks: Vec<Blocks> = blocks.collect();
    assert!(encode(blocks.iter()).is_some());
}
