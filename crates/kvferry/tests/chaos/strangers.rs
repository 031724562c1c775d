//! Ten thousand strangers among the requests.

use std::time::Duration;

use crate::form::{Form, report};
use crate::garbage::{Flood, Loiterers};
use crate::spec::patient;
use crate::world::{PATIENCE, TOLD, World};

const CONNECTIONS: u64 = 10_000;

#[test]
fn requests_among_ten_thousand_strangers() {
    let form = Form::of_environment();
    let (mut world, start) = World::start(patient(), Duration::from_secs(form.pick(120, 400)));
    let before = world.judge.tally.received;
    let ports = world.p.process().ports();
    assert_eq!(ports.len(), 2, "a port for control and one for data");
    let loiterers = Loiterers::start(&ports, 200, 50, form.seed);
    let flood = Flood::start(&ports, form.pick(1, 5) * CONNECTIONS, form.seed);
    let limit = Duration::from_secs(form.pick(60, 300));
    world.until("the flood's end", limit, |_| flood.is_over());
    let connections = flood.end();
    // A second for the slow ones to have said something.
    world.run_for(Duration::from_secs(2));
    let tally = &world.judge.tally;
    assert!(tally.failed.is_empty(), "{tally}");
    let received = tally.received - before;
    assert!(received > 0);
    // Who is new gets in as well.
    world.kill_d();
    world.start_d();
    world.good_within(1, TOLD + PATIENCE);
    drop(loiterers);
    world.ends_as_it_began(start);
    let tally = &world.judge.tally;
    let result = format!("{tally}; {received} received during {connections} connections");
    report("strangers", result);
}
