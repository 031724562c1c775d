//! Cases on all cores.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls `case` with every number, each thread with a sum of its own; gives back the sums.
pub fn run<T: Default + Send>(cases: Range<u64>, case: impl Fn(u64, &mut T) + Sync) -> Vec<T> {
    let next = AtomicU64::new(cases.start);
    let worker = || {
        let mut sum = T::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= cases.end {
                return sum;
            }
            case(number, &mut sum);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let ended = workers.into_iter().map(|worker| worker.join());
        let sums: Result<Vec<T>, _> = ended.collect();
        sums.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
