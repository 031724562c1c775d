//! What a peer may send at most, and how a list is cut off before it is built.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// Time that any state or setting may last: a day. Sums with clocks stay far from their ends.
pub const MAX_BOUND: Duration = Duration::from_secs(24 * 60 * 60);
/// Block ids of one lease, over all its tables: 8,000,000 bytes. Both a frame of the control
/// channel ([`MAX_FRAME`](crate::codec::MAX_FRAME)) and one read request carry them: the tightest
/// is `MAX_REQUEST_BYTES` of `transport::tcp`, 8 MiB, which leaves 388,608 bytes for patterns.
pub const MAX_LEASE_BLOCKS: usize = 2_000_000;
/// Ranks of one engine, and so readers of one claim.
pub const MAX_RANKS: u32 = 4096;
/// KV cache groups, and so block tables of one lease.
pub const MAX_GROUPS: usize = 64;
/// Bytes of a request id.
pub const MAX_REQUEST_ID: usize = 256;
/// Bytes of any other name or address.
pub const MAX_NAME: usize = 1024;
/// Claims that one lease takes in its life, ended ones included.
pub const MAX_CLAIMS: usize = 64;
/// Prefill engines that a worker of D remembers.
pub const MAX_ENGINES: usize = 4096;
/// Reads of one rank of P that are under way at a time; more wait for their turn.
pub const MAX_OPEN_READS: usize = 32;
/// Requests of one peer that wait for their lease to be granted.
pub const MAX_EARLY: usize = 256;

/// Deserializes a list of at most `MAX` elements; a longer one is an error at element `MAX`.
pub(crate) fn at_most<'de, D, T, C, const MAX: usize>(from: D) -> Result<C, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
    C: FromIterator<T>,
{
    from.deserialize_seq(AtMost::<T, MAX>(PhantomData)).map(|list| list.into_iter().collect())
}

struct AtMost<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for AtMost<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = from.next_element()? {
            if list.len() == MAX {
                return Err(A::Error::invalid_length(MAX + 1, &self));
            }
            list.push(element);
        }
        Ok(list)
    }
}
