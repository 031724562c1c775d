//! Alone in its process, since it measures the CPU time of all threads.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};
use transport::tcp::{TcpConfig, TcpEndpoint};
use transport::{AgentId, Endpoint, Event, GrantToken, Outcome, Transfer, TransferId};

fn endpoint(agent: u64) -> TcpEndpoint {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    TcpEndpoint::bind(TcpConfig::new(AgentId(agent), 1, listen)).unwrap()
}

#[test]
fn a_connection_without_work_costs_no_core() {
    let (mut source, mut reader) = (endpoint(1), endpoint(2));
    let (id, token, timeout) = (TransferId(1), GrantToken(1), Duration::from_secs(10));
    source.grant(AgentId(2), token, vec![]).unwrap();
    let peer = reader.connect(&source.card()).unwrap();
    reader.submit(Transfer { id, peer, token, copies: vec![], timeout }).unwrap();
    let mut events = Vec::new();
    while events.is_empty() {
        poll(&mut [PollFd::from_borrowed_fd(reader.ready_fd(), PollFlags::IN)], None).unwrap();
        reader.poll(&mut events);
    }
    assert_eq!(events, [Event::Completion { id, outcome: Outcome::Done }]);

    let cpu = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
    let before = cpu();
    std::thread::sleep(Duration::from_millis(1500));
    let spent = cpu() - before;
    assert!(spent < Duration::from_millis(15), "{spent:?}");
}
