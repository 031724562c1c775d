use std::collections::{BTreeMap, BTreeSet};

use crate::ids::Rank;

/// To which ranks of P one rank of D must speak, each with the ranks of D that will read it.
///
/// `readers` says of each rank of P which ranks of D read it
/// ([`kv_layout::readers`]). Where nobody does, one rank of D is the teller that frees it: the
/// ranks of P that nobody reads are dealt out to the `ranks` of D in turn.
#[must_use]
pub fn counterparts(
    readers: &[BTreeSet<usize>],
    ranks: usize,
    rank: Rank,
) -> BTreeMap<usize, BTreeSet<Rank>> {
    let me = rank.0 as usize;
    let speaks = |&(source, readers): &(usize, &BTreeSet<usize>)| match readers.is_empty() {
        true => source % ranks.max(1) == me,
        false => readers.contains(&me),
    };
    let named = |readers: &BTreeSet<usize>| {
        readers.iter().filter_map(|&reader| u32::try_from(reader).ok()).map(Rank).collect()
    };
    let spoken_to = readers.iter().enumerate().filter(speaks);
    spoken_to.map(|(source, readers)| (source, named(readers))).collect()
}
