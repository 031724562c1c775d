use super::*;

const WINDOWED: &str = r#"{
    "model_type": "gemma3_text", "torch_dtype": "bfloat16", "num_hidden_layers": 6,
    "hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 64,
    "sliding_window": 64, "sliding_window_pattern": 6
}"#;

fn planned(tokens: u64) -> (Model, Grouping, Planned) {
    let model = Model::from_config(WINDOWED, "config.json").unwrap();
    let grouping = Grouping::new(&model, 16).unwrap();
    let planned = Planned::new(&model, &grouping, PageOrder::Joint, tokens).unwrap();
    (model, grouping, planned)
}

fn rows(model: &Model, grouping: &Grouping, planned: &Planned) -> (Vec<GroupRow>, Vec<LayerRow>) {
    let groups = grouping.groups.iter().zip(0..);
    let groups: Vec<_> = groups.map(|(group, at)| group_row(group, at, planned)).collect();
    let layers = layer_rows(model, &groups, planned, 200);
    (groups, layers)
}

#[test]
fn what_moves_is_what_the_copies_name() {
    let (model, grouping, planned) = planned(200);
    let (groups, layers) = rows(&model, &grouping, &planned);
    // The query at 199 sees keys from 136 on, in block 8 of 13.
    for (index, layer) in layers.iter().enumerate() {
        let expected = if index == 5 { (0, 13) } else { (8, 5) };
        assert_eq!((layer.first_moved, layer.moved), expected, "{}", layer.name);
        let group = &groups[layer.group as usize];
        assert_eq!((group.first_moved, group.moved), expected, "{}", layer.name);
    }
    let cells: u64 = layers.iter().map(|layer| layer.moved).sum();
    assert_eq!(cells, planned.ranges(), "a cell is a page, and each page moves as one range");
}

/// The rows follow the plan, also a wrong one: they cannot say anything else.
#[test]
fn a_plan_that_moves_nothing_shows_as_nothing() {
    let (model, grouping, mut planned) = planned(200);
    planned.plan.reads.iter_mut().for_each(Vec::clear);
    let (groups, layers) = rows(&model, &grouping, &planned);
    assert!(groups.iter().all(|group| group.moved == 0));
    assert!(layers.iter().all(|layer| layer.moved == 0));
}

#[test]
fn a_layer_that_the_plan_forgets_moves_nothing_while_others_do() {
    let (model, grouping, mut planned) = planned(200);
    let forgotten = planned.layout.layers.iter().find(|placed| placed.name == "layers.1").unwrap();
    let (region, ids) =
        (forgotten.parts[0].region, planned.tables[forgotten.group as usize].ids[0]);
    planned.plan.reads[0]
        .retain(|copy| copy.source().region().0 != region || !copy.source().ids().contains(&ids));
    let (_, layers) = rows(&model, &grouping, &planned);
    let moved: Vec<u64> = layers.iter().map(|layer| layer.moved).collect();
    assert_eq!(moved, [5, 0, 5, 5, 5, 13]);
}
