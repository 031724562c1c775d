use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};
use transport::shm::{ShmConfig, ShmEndpoint};
use transport::tcp::{TcpConfig, TcpEndpoint};
use transport::{AgentId, Endpoint, Event, GrantToken, Outcome, Transfer, TransferId};

use crate::Fallible;

const READERS: u64 = 64;

/// What 64 readers and their source take together, in one process, while nobody reads.
pub fn bench(rounds: usize) -> Fallible<()> {
    let time = Duration::from_millis(if rounds > 1 { 10_000 } else { 100 });
    println!("\n{READERS} readers connected to one source, for {} s", time.as_secs_f64());
    println!("\n| provider | CPU of all of them, ms | of a core |\n|---|---|---|");
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    look("tcp", time, |agent| Ok(Box::new(TcpEndpoint::bind(TcpConfig::new(agent, 0, listen))?)))?;
    look("shm", time, |agent| Ok(Box::new(ShmEndpoint::bind(ShmConfig::new(agent, 0))?)))
}

fn look(
    name: &str,
    time: Duration,
    open: impl Fn(AgentId) -> Fallible<Box<dyn Endpoint>>,
) -> Fallible<()> {
    let mut source = open(AgentId(READERS))?;
    let mut readers = Vec::new();
    for number in 0..READERS {
        let token = GrantToken(number);
        source.grant(AgentId(number), token, vec![])?;
        let mut reader = open(AgentId(number))?;
        let peer = reader.connect(&source.card())?;
        let timeout = Duration::from_secs(60);
        let nothing = Transfer { id: TransferId(1), peer, token, copies: vec![], timeout };
        reader.submit(nothing).map_err(|error| error.why)?;
        poll(&mut [PollFd::from_borrowed_fd(reader.ready_fd(), PollFlags::IN)], None)?;
        let mut events = Vec::new();
        reader.poll(&mut events);
        if !matches!(events.as_slice(), [Event::Completion { outcome: Outcome::Done, .. }]) {
            return Err(format!("{events:?}").into());
        }
        readers.push(reader);
    }
    let cpu = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime));
    // What the last connection leaves behind is no idleness.
    thread::sleep(time / 10);
    let (start, before) = (Instant::now(), cpu()?);
    thread::sleep(time);
    let (spent, wall) = (cpu()?.saturating_sub(before), start.elapsed());
    let share = 100.0 * spent.as_secs_f64() / wall.as_secs_f64();
    println!("| {name} | {:.1} | {share:.2} % |", spent.as_secs_f64() * 1e3);
    let mut events = Vec::new();
    readers.iter_mut().for_each(|reader| reader.poll(&mut events));
    if events.is_empty() { Ok(()) } else { Err(format!("not idle: {events:?}").into()) }
}
