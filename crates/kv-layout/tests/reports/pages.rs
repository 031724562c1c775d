//! Layout arithmetic: what lies where in a page, and where pages lie in their regions.

use kv_layout::{
    BlockTable, CacheLayout, EngineShape, Grouping, Kind, Layer, Overlap, PageOrder, Role, Span,
};

use crate::kit::{
    Engine, MAMBA2, Run, group, keys, model, prompt, put, read, region, runs, single, state, table,
    try_read, window,
};

#[test]
fn r08_sglang_37416_virtual_ids_are_translated() {
    // v0, v1 and v2 are pages 7, 3 and 9.
    let pool = [7, 3, 9];
    let virtual_ids = table(0, &[0, 2]);
    assert_eq!(virtual_ids.translated(&pool), Some(table(0, &[7, 9])));
    assert_eq!(table(0, &[0, 3]).translated(&pool), None);
    // Bytes that say which page they are of: an untranslated id would give other ones.
    let memory: Vec<u8> = (0..160).map(|byte| byte / 16).collect();
    let layout = single(region(16, 10), group(16), vec![keys("a", window(64), 0..1, 1, 16)]);
    let from = Engine::one(layout.clone(), &[virtual_ids.translated(&pool).unwrap()]);
    let to = Engine::one(layout, &[table(0, &[0, 1])]);
    let mut arrived = [0_u8; 32];
    for run in runs(&read(&from, &to, 0, &[], prompt(32)), &from, &to.layouts[0]) {
        let (at, len) = (run.from.1 as usize, run.len as usize);
        arrived[run.to.1 as usize..][..len].copy_from_slice(&memory[at..at + len]);
    }
    assert_eq!(arrived[..16], [7; 16]);
    assert_eq!(arrived[16..], [9; 16]);
}

/// Four heads of 128 half-precision numbers, blocks of 16 tokens: keys and values apart.
fn heads(order: PageOrder) -> CacheLayout {
    let model = model(vec![Layer::attention("a", Kind::Full, 4, 256, 256)]);
    let grouping = Grouping::new(&model, 16).unwrap();
    let mut layout = CacheLayout::new(&model, &grouping, PageOrder::Apart, 10);
    if order == PageOrder::TokensOutside {
        for part in &mut layout.layers[0].parts {
            (part.unit_stride, part.token_stride) = (256, 1024);
        }
    }
    layout
}

#[test]
fn r09_vllm_46204_token_major_and_head_major_pages() {
    let engine = |order| Engine::one(heads(order), &[table(0, &[1])]);
    let (nhd, hnd) = (engine(PageOrder::TokensOutside), engine(PageOrder::Apart));
    // Where the 256 bytes of head 2 of token 3 come from, if they arrive at byte `to` of D's
    // block 1.
    let from = |p: &Engine, d: &Engine, to: u64| {
        let runs = runs(&read(p, d, 0, &[], prompt(16)), p, &d.layouts[0]);
        let to = 16_384 + to;
        let holds = |run: &&Run| run.to.0 == 0 && (run.to.1..run.to.1 + run.len).contains(&to);
        let run = runs.iter().find(holds).unwrap();
        assert!(to + 256 <= run.to.1 + run.len);
        run.from.1 + (to - run.to.1) - 16_384
    };
    let (in_nhd, in_hnd) = (3584, 8960);
    assert_eq!(from(&nhd, &hnd, in_hnd), in_nhd);
    assert_eq!(from(&hnd, &nhd, in_nhd), in_hnd);
    assert_eq!(from(&nhd, &nhd, in_nhd), in_nhd);
    assert_eq!(from(&hnd, &hnd, in_hnd), in_hnd);
    // Alike, a page is one plain copy.
    for engine in [&nhd, &hnd] {
        let runs = runs(&read(engine, engine, 0, &[], prompt(16)), engine, &engine.layouts[0]);
        assert_eq!(runs.iter().map(|run| run.len).collect::<Vec<_>>(), [16_384, 16_384]);
    }
}

#[test]
fn r10_sglang_das_95_keys_and_values_of_different_length() {
    // Pages of 4096 and 2048 bytes: 16 tokens of 256 and 128.
    let model = model(vec![Layer::attention("a", Kind::Full, 1, 256, 128)]);
    let grouping = Grouping::new(&model, 16).unwrap();
    let layout = CacheLayout::new(&model, &grouping, PageOrder::Apart, 10);
    let engine = Engine::one(layout, &[table(0, &[5])]);
    let plan = read(&engine, &engine, 0, &[], prompt(16));
    let moved: Vec<_> = runs(&plan, &engine, &engine.layouts[0])
        .iter()
        .map(|run| (run.from.0, run.from.1, run.len))
        .collect();
    assert_eq!(moved, [(0, 20_480, 4096), (1, 10_240, 2048)]);
    assert_eq!(plan.bytes(), 6144);
}

#[test]
fn r11_trtllm_16505_sizes_are_those_of_each_group() {
    // A state of 1000 numbers of 2 bytes and a block of 1000 of 1 byte.
    let ssm = || state("ssm", MAMBA2, &[(Role::Temporal, 0..1000, 2)]);
    let attention = || keys("attn", Kind::Full, 0..10, 1, 100);
    let engine = |state_group: u32| {
        let layers = vec![put(ssm(), state_group, 0), put(attention(), 1 - state_group, 1)];
        let mut tables = [table(100, &[3]), table(0, &[4])];
        tables.rotate_left(state_group as usize);
        let layout = CacheLayout {
            regions: vec![region(2048, 10), region(1000, 10)],
            groups: vec![group(100), group(100)],
            layers,
        };
        Engine::one(layout, &tables)
    };
    let sizes = |from: &Engine, to: &Engine| {
        let plan = read(from, to, 0, &[], Span { valid: 100, resume_at: 100 });
        let runs = runs(&plan, from, &to.layouts[0]);
        runs.iter().map(|run| (run.from, run.len)).collect::<Vec<_>>()
    };
    let right = [((0, 6144), 2000), ((1, 4000), 1000)];
    for (from, to) in [(0, 0), (1, 1), (0, 1), (1, 0)] {
        assert_eq!(sizes(&engine(from), &engine(to)), right, "{from} {to}");
    }
}

#[test]
fn r12_vllm_36687_padding_of_a_state_is_neither_cut_nor_sent() {
    // A page of 4096 bytes: 1000 of convolution, 2000 of state, 1096 of padding.
    let layout = |units: std::ops::Range<u32>| {
        let parts = [(Role::ConvInput, units.clone(), 500), (Role::Temporal, units, 1000)];
        single(region(4096, 10), group(16), vec![state("a", MAMBA2, &parts)])
    };
    let from = Engine::one(layout(0..2), &[table(64, &[1])]);
    let ranks = || [layout(0..1), layout(1..2)].map(|layout| (layout, table(64, &[2])));
    let to = Engine::ranks(ranks());
    let span = Span { valid: 64, resume_at: 64 };
    let mut read_of_page = 0;
    for (rank, right) in
        [(0, [(0, 0, 500), (1000, 500, 1000)]), (1, [(500, 0, 500), (2000, 500, 1000)])]
    {
        let plan = read(&from, &to, rank, &[], span);
        let moved: Vec<_> = runs(&plan, &from, &to.layouts[rank])
            .iter()
            .map(|run| (run.from.1 - 4096, run.to.1 - 8192, run.len))
            .collect();
        assert_eq!(moved, right);
        assert_eq!(plan.bytes(), 1500);
        read_of_page = read_of_page.max(moved[1].0 + moved[1].2);
    }
    assert_eq!(read_of_page, 3000);
}

#[test]
fn r13_sglang_19045_offsets_past_two_and_four_gigabytes() {
    let engine = |stride, id| {
        let layer = keys("a", Kind::Full, 0..1, 4096, 16);
        Engine::one(single(region(stride, 100_000), group(16), vec![layer]), &[table(0, &[id])])
    };
    let engine_of = engine(65_536, 70_000);
    let moved =
        runs(&read(&engine_of, &engine_of, 0, &[], prompt(16)), &engine_of, &engine_of.layouts[0]);
    assert_eq!((moved[0].from.1, moved[0].len), (4_587_520_000, 65_536));
    // A region larger than 64 bits can say is refused.
    let huge = engine(u64::MAX / 2, 3);
    let refused = try_read(&huge, &engine_of, 0, &[], prompt(16)).unwrap_err().to_string();
    assert!(refused.starts_with("a: the source's layout: "), "{refused}");
    // So is a page whose last byte lies past the end of its block.
    let mut wide = engine(65_536, 3);
    wide.layouts[0].layers[0].parts[0].token_stride = u64::MAX / 2;
    assert!(try_read(&wide, &engine_of, 0, &[], prompt(16)).is_err());
    wide.layouts[0].layers[0].parts[0].offset = u64::MAX;
    assert!(try_read(&wide, &engine_of, 0, &[], prompt(16)).is_err());
}

#[test]
fn r14_vllm_23079_regions_are_counted_by_memory_not_by_layers() {
    // Two full layers and four windowed ones: three groups of two layers share two regions.
    let kinds = [Kind::Full, Kind::Full].into_iter().chain([window(64); 4]);
    let layer = |(index, kind)| Layer::attention(format!("layers.{index}"), kind, 1, 8, 8);
    let model = model((0..).zip(kinds).map(layer).collect());
    let grouping = Grouping::new(&model, 16).unwrap();
    let layout = CacheLayout::new(&model, &grouping, PageOrder::Joint, 100);
    assert_eq!((layout.regions.len(), layout.layers.len(), layout.groups.len()), (2, 6, 3));
    let of: Vec<u32> = layout.layers.iter().map(|layer| layer.parts[0].region).collect();
    assert_eq!(of, [0, 1, 0, 1, 0, 1]);
    let tables: Vec<BlockTable> = [[1, 2], [3, 4], [5, 6]].map(|ids| table(0, &ids)).to_vec();
    let engine = Engine::one(layout.clone(), &tables);
    let plan = read(&engine, &engine, 0, &[], prompt(32));
    assert_eq!(plan.copies().map(|copy| copy.source().ids().len()).sum::<usize>(), 12);
    for run in runs(&plan, &engine, &engine.layouts[0]) {
        assert!(run.from.1 + run.len <= layout.regions[run.from.0 as usize].bytes().unwrap());
    }
}

#[test]
fn r14_vllm_23079_a_layer_that_uses_anothers_cache_adds_nothing() {
    // It keeps nothing of its own, so it is no layer here; where a peer lists it, it is the
    // same bytes under another name and is left out by name.
    let layers = vec![keys("layers.0", Kind::Full, 0..1, 4, 16)];
    let plain = Engine::one(single(region(64, 10), group(16), layers.clone()), &[table(0, &[1])]);
    let mut listed = single(region(64, 10), group(16), layers);
    listed.layers.push(keys("layers.1", Kind::Full, 0..1, 4, 16));
    let listed = Engine::one(listed, &[table(0, &[1])]);
    let plan = read(&plain, &plain, 0, &[], prompt(16));
    let aliased = read(&listed, &plain, 0, &[], prompt(16));
    assert_eq!((plan.bytes(), &plan), (64, &aliased));
}

/// The state of a recurrent group and the keys of another lie in the same pages: one block in
/// both tables would be written by both.
#[test]
fn r88_musa_221_groups_that_share_pages_share_no_block() {
    let layers = vec![
        Layer::attention("layers.0", Kind::Full, 1, 8, 8),
        Layer::attention("layers.1", window(16), 1, 8, 8),
    ];
    let shape = EngineShape::single(8, PageOrder::Joint);
    let layout = shape.layouts(&model(layers), 10).unwrap().remove(0);
    let table = |ids: &[u32]| table(0, ids);
    let overlap = |block, first, second| Err(Overlap { block, first, second });
    assert_eq!(layout.check_distinct(&[table(&[1, 2]), table(&[3, 4])]), Ok(()));
    assert_eq!(layout.check_distinct(&[table(&[1, 2]), table(&[3, 2])]), overlap(2, 0, 1));
    assert_eq!(layout.check_distinct(&[table(&[5, 5]), table(&[])]), overlap(5, 0, 0));
    // Each group in a region of its own: the ids are of two pools.
    let mut apart = layout;
    let region = apart.regions[0];
    apart.regions.push(region);
    let second = apart.regions.len() as u32 - 1;
    for layer in apart.layers.iter_mut().filter(|layer| layer.group == 1) {
        layer.parts.iter_mut().for_each(|part| part.region = second);
    }
    assert_eq!(apart.check_distinct(&[table(&[1, 2]), table(&[2, 1])]), Ok(()));
}
