use std::collections::BTreeSet;

use super::*;

fn of(text: &str) -> Vec<Workload> {
    text.parse::<Workloads>().unwrap().0
}

#[test]
fn the_named_ones_move_what_their_names_promise() {
    for (name, blocks, bytes) in
        [("W1", 1650, 128 << 10), ("w2", 4284, 128 << 10), ("W3", 8192, 4096), ("w4", 1, 4096)]
    {
        let workload = of(name).remove(0);
        assert_eq!(workload.check(), Ok(()));
        assert_eq!(workload.moves(1).len(), blocks, "{name}");
        assert_eq!(workload.bytes(), blocks as u64 * bytes, "{name}");
        assert_eq!(workload.is_latency(), name == "w4");
    }
}

#[test]
fn ids_are_different_and_no_two_follow_each_other() {
    for name in ["W1", "W2", "W3", "4KiBx3", "1MiBx128"] {
        for seed in 0..20 {
            let workload = of(name).remove(0);
            for side in [Side::Source, Side::Target] {
                let ids = workload.ids(side, seed);
                let different: BTreeSet<u32> = ids.iter().copied().collect();
                assert_eq!(different.len(), workload.moved as usize, "{name}");
                assert!(different.iter().all(|&id| id < workload.pool), "{name}");
                assert!(ids.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1), "{name} {seed}");
            }
        }
    }
}

#[test]
fn both_sides_draw_their_own_ids_from_one_seed() {
    let workload = of("W3").remove(0);
    assert_eq!(workload.ids(Side::Source, 7), workload.ids(Side::Source, 7));
    assert_ne!(workload.ids(Side::Source, 7), workload.ids(Side::Target, 7));
    assert_ne!(workload.ids(Side::Source, 7), workload.ids(Side::Source, 8));
}

#[test]
fn a_move_starts_where_its_region_and_id_say() {
    let workload = of("W1").remove(0);
    let (source, target) = (workload.ids(Side::Source, 3), workload.ids(Side::Target, 3));
    let place = |region: usize, id: u32| (region * 400 + id as usize) * (128 << 10);
    let moves = workload.moves(3);
    for (at, region, index) in [(0, 0, 0), (164, 0, 164), (165, 1, 0), (1649, 9, 164)] {
        let expected =
            Move { source: place(region, source[index]), target: place(region, target[index]) };
        assert_eq!(moves[at], expected);
    }
}

#[test]
fn the_sweep_has_each_size_with_each_count_that_fits() {
    let names: Vec<String> = of("sweep").into_iter().map(|workload| workload.name).collect();
    assert_eq!(names.len(), 14);
    assert!(names.contains(&"4KiBx16".to_owned()) && names.contains(&"256KiBx1024".to_owned()));
    assert!(!names.contains(&"1MiBx1024".to_owned()));
}

#[test]
fn what_is_none() {
    for text in ["", "W5", "4KiB", "4KiBx", "x4", "1000x4", "4KiBx0", "4GiBx1", "4KiBx4294967295"] {
        assert!(text.parse::<Workloads>().is_err(), "{text}");
    }
}
