//! Alone in its process, since it measures the CPU time of all threads.

#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation, reason = "a test")]

mod common;

use std::time::Duration;

use common::*;
use rustix::time::{ClockId, clock_gettime};
use transport::Outcome;

#[test]
fn a_connection_without_work_costs_no_core() {
    let mut pair = Pair::new(&Net::Tcp, Pool::new(4096, 4), Pool::new(4096, 4));
    pair.source.grant(READER, TOKEN, vec![page(&[1], 8)]).unwrap();
    assert_eq!(pair.read(1, vec![]), Outcome::Done);
    let cpu = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
    let before = cpu();
    std::thread::sleep(Duration::from_millis(1500));
    let spent = cpu() - before;
    assert!(spent < Duration::from_millis(15), "{spent:?}");
}
