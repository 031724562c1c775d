//! How much memory an answer may take.

/// Bytes that anything may take, whatever it is given: error texts, empty maps, small tables.
pub const BASE: u64 = 16 << 10;

/// Runs `work` and checks that its peak of memory stays within `BASE + allowed`.
///
/// The peak and not the sum: what matters is whether a few bytes from outside make many here.
///
/// # Panics
/// If it takes more.
pub fn within<T>(allowed: u64, what: &str, work: impl FnOnce() -> T) -> T {
    let mut result = None;
    let used = allocation_counter::measure(|| result = Some(work())).bytes_max;
    let allowed = BASE.saturating_add(allowed);
    assert!(used <= allowed, "{what} took {used} bytes, where {allowed} are allowed");
    match result {
        Some(result) => result,
        None => unreachable!("the work was run"),
    }
}

/// Bytes for things that are built from `count` given ones, of `each` bytes at most.
#[must_use]
pub fn of(count: usize, each: u64) -> u64 {
    (count as u64).saturating_mul(each)
}
