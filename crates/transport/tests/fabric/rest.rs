//! A driver with nothing to do costs little, and is there when it is needed.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use transport::libfabric::{FabricConfig, Outcome};

use crate::ends::*;
use crate::moves::Source;
use crate::stage::*;

const WATCHED: Duration = Duration::from_millis(1500);

fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap()
}

/// What naps alone cost on this machine, as a share of a core.
fn naps(nap: Duration) -> f64 {
    let (begun, before) = (Instant::now(), cpu());
    while begun.elapsed() < WATCHED {
        std::thread::sleep(nap);
    }
    (cpu() - before).as_secs_f64() / begun.elapsed().as_secs_f64()
}

fn cpu_of(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0))
}

#[test]
fn a_driver_that_waits_costs_no_core() {
    on_each_stage("rest::a_driver_that_waits_costs_no_core", |stage| {
        for wait in [true, false] {
            let config = FabricConfig { wait, ..stage.config() };
            let end = End::with(transport::libfabric::Driver::open(config).unwrap(), 1 << 20);
            std::thread::sleep(Duration::from_millis(100));
            let before = cpu();
            std::thread::sleep(WATCHED);
            let share = (cpu() - before).as_secs_f64() / WATCHED.as_secs_f64();
            let facts = end.driver.facts();
            let bare = naps(Duration::from_millis(if facts.wakes { 20 } else { 2 }));
            say(&format!(
                "measured: {} of {}, woken {}: {:.2} % of a core; such naps alone {:.2} %",
                facts.provider,
                facts.version,
                facts.wakes,
                share * 100.0,
                bare * 100.0
            ));
            assert!(share < 0.01 + 2.0 * bare, "{share} beside {bare}");
        }
    });
}

/// Alone on the stage it takes a millisecond; here other tests run beside it.
#[test]
fn the_first_request_after_a_pause_is_answered_soon() {
    on_each_stage("rest::the_first_request_after_a_pause_is_answered_soon", |stage| {
        let source = Source::start(stage);
        let (address, remote) = read_card(&source.card);
        let reader = End::new(stage, 1 << 20);
        let peer = reader.driver.insert(&address).unwrap();
        let moves = shuffled(1, 4096);
        assert_eq!(reader.read(0, peer, &remote, &moves), Outcome::Done);
        let mut took: Vec<Duration> = (1..20)
            .map(|id| {
                std::thread::sleep(Duration::from_millis(30));
                let begun = Instant::now();
                assert_eq!(reader.read(id, peer, &remote, &moves), Outcome::Done);
                begun.elapsed()
            })
            .collect();
        took.sort();
        say(&format!(
            "measured: {}: first read after a pause: median {:?}, longest {:?}; {:?} of the source's main thread",
            reader.driver.facts().provider,
            took[took.len() / 2],
            took[took.len() - 1],
            cpu_of(source.child.id())
        ));
        assert!(took[took.len() / 2] < Duration::from_millis(20), "{took:?}");
    });
}
