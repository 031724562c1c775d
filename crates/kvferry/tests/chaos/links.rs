//! Links that break, for a while or in one direction, and links that are bad.

use std::net::Ipv4Addr;
use std::time::Duration;

use kvferry::connector::Bounds;

use crate::form::{Form, report};
use crate::judge::ENDS;
use crate::network::Hosts;
use crate::slow::Way;
use crate::spec::{Part, patient, short};
use crate::world::{Descriptors, TOLD, World};

/// After a link is whole again: the rest of a handshake that found nobody (10 s), and the time
/// for which an engine that could not be greeted is left alone (4 s), doubled.
const BACK: Duration = Duration::from_secs(28);

/// Hosts, or `None` with the reason said; with engines that have handed over something.
fn hosts(scenario: &str, bounds: Bounds) -> Option<(Hosts, World, Descriptors)> {
    let hosts = Hosts::new(scenario)?;
    let (world, start) = hosts.world(bounds, Duration::from_secs(180));
    Some((hosts, world, start))
}

fn a_link_that_is_down(scenario: &str, times: u64, down: Duration) {
    let Some((hosts, mut world, start)) = hosts(scenario, short()) else { return };
    let mut back = Duration::ZERO;
    for _ in 0..times {
        world.run_for(Duration::from_millis(50));
        world.meanwhile(hosts.cable("down"));
        world.judge.hit(ENDS);
        world.run_for(down);
        world.meanwhile(hosts.cable("up"));
        back = back.max(world.good_within(1, BACK));
    }
    world.ends_as_it_began(start);
    report(scenario, format!("{}; works again after {back:.1?}", world.judge.tally));
}

#[test]
fn a_link_that_is_down_for_a_second() {
    let times = Form::of_environment().pick(1, 5);
    a_link_that_is_down("link down 1 s", times, Duration::from_secs(1));
}

/// Longer than silence is borne.
#[test]
fn a_link_that_is_down_for_eight_seconds() {
    let times = Form::of_environment().pick(1, 3);
    a_link_that_is_down("link down 8 s", times, Duration::from_secs(8));
}

/// One side hears the other and is not heard. All ends on both sides, without the link.
fn half_open(scenario: &str, silent: Part) {
    let Some((hosts, mut world, start)) = hosts(scenario, short()) else { return };
    world.linger = 20;
    world.fickle = true;
    world.run_for(Duration::from_millis(50));
    world.meanwhile(hosts.mute(silent));
    world.judge.hit(ENDS);
    let width = std::mem::take(&mut world.width);
    let told = world.until("the end of all", ENDS, |world| world.judge.under_way() == 0);
    let bounds = world.p.spec.bounds;
    let kept = bounds.claim_life + bounds.unclaimed + TOLD;
    let freed = told + world.until("P's blocks", kept, |world| world.judge.leases() == 0);
    world.meanwhile(hosts.unmute(silent));
    world.width = width;
    let back = world.good_within(1, BACK);
    world.ends_as_it_began(start);
    let tally = &world.judge.tally;
    report(
        scenario,
        format!("{tally}; P's blocks free after {freed:.1?}, works again after {back:.1?}"),
    );
}

#[test]
fn nothing_that_p_sends_arrives() {
    half_open("half-open, P unheard", Part::Prefill);
}

#[test]
fn nothing_that_d_sends_arrives() {
    half_open("half-open, D unheard", Part::Decode);
}

/// Requests take their time, and all are received.
fn slow(scenario: &str, mut world: World, start: Descriptors) {
    world.run_for(Duration::from_secs(Form::of_environment().pick(4, 30)));
    let tally = &world.judge.tally;
    assert!(tally.failed.is_empty(), "{tally}");
    world.ends_as_it_began(start);
    report(scenario, &world.judge.tally);
}

#[test]
fn a_link_that_is_slow_and_loses_packets() {
    let scenario = "20 ms, 1 % loss (netem)";
    let Some((hosts, world, start)) = hosts(scenario, patient()) else { return };
    match hosts.worsen("delay 20ms loss 1%") {
        Ok(()) => slow(scenario, world, start),
        Err(why) => report(scenario, format!("skipped, no netem: {why}")),
    }
}

/// The same for every kernel, as far as a stream's reader can tell.
#[test]
fn a_way_that_is_slow_and_stalls() {
    let scenario = "20 ms, 1 % stalls (proxy)";
    let Some(hosts) = Hosts::new(scenario) else { return };
    let specs = hosts.specs(Ipv4Addr::LOCALHOST, patient());
    let mut world = World::idle(specs, Duration::from_secs(180));
    world.start_p();
    let ports = world.p.process().ports();
    let _way = Way::start(hosts.spaces(), ports, Form::of_environment().seed);
    let start = world.begin();
    slow(scenario, world, start);
}
