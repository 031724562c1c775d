//! Strangers in numbers: whoever speaks at once is served, and nothing piles up.

use std::collections::VecDeque;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::stranger::{hello, noise};
use crate::common::{D, within};
use crate::secret::proven;
use crate::strangers::Server;
use kvferry::Config;
use kvferry::connector::Why;
use kvferry::kv_layout::PageOrder;
use kvferry::transport::session::{Channel, Role};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Far below the 5 s after which a silent stranger is hung up on.
const AT_ONCE: Duration = Duration::from_secs(2);

/// More than may be strangers, on both ports, and none of them says a word. Gives
/// the time that the first hand-off takes among them.
async fn serves_among_silent_strangers(config: &Config) -> Duration {
    let mut server = Server::with(config).await;
    let mut silent = Vec::new();
    for port in [server.control(), server.data().await] {
        for _ in 0..200 {
            silent.push(TcpStream::connect(port).await.unwrap());
        }
    }
    let start = Instant::now();
    server.serves().await;
    let taken = start.elapsed();
    assert!(taken < AT_ONCE, "{taken:?}");
    drop(silent);
    server.at_rest().await;
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_strangers_keep_nobody_out() {
    println!("served in {:?}", serves_among_silent_strangers(&Config::default()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_strangers_keep_nobody_out_who_has_the_secret() {
    println!("served in {:?}", serves_among_silent_strangers(&proven()).await);
}

/// What the whole process holds now: descriptors, threads, and bytes of memory.
fn held() -> [u64; 3] {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    [descriptors, line("Threads:"), line("VmRSS:") << 10]
}

/// From an address of the member's own: its used ports are in no other test's way.
async fn connect(member: u8, port: SocketAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 0, 2 + member), 0).into()).ok()?;
    socket.connect(port).await.ok()
}

/// Noise, half a hello, a hello and nothing else, nothing: some hang up and some hold on. Gives
/// how many came.
async fn garbage(member: u8, count: u64, ports: [SocketAddr; 2]) -> usize {
    let (mut held, mut came) = (VecDeque::new(), 0);
    for (turn, port) in (0..count).zip(ports.into_iter().cycle()) {
        let Some(mut stranger) = connect(member, port).await else { continue };
        let greeting = hello(Role::Decode, Channel::Data);
        // The other side may have hung up already.
        let _ = match turn % 8 {
            0..2 => stranger.write_all(&noise(u64::from(member) * count + turn, 200)).await,
            2..4 => stranger.write_all(&greeting[..32]).await,
            4..6 => stranger.write_all(&greeting).await,
            _ => Ok(()),
        };
        came += 1;
        held.push_back(stranger);
        if held.len() > 10 {
            held.pop_front();
        }
    }
    came
}

/// All these tests share a process: the limits are far above what they hold, and far below
/// what ten thousand connections would.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_strangers_leave_nothing_behind() {
    let mut server = Server::with(&proven()).await;
    let ports = [server.control(), server.data().await];
    server.serves().await;
    let before = held();
    let over = Arc::new(AtomicBool::new(false));
    let mut crowd = JoinSet::new();
    for member in 0..10 {
        crowd.spawn(garbage(member, 1000, ports));
    }
    let crowd = {
        let over = Arc::clone(&over);
        tokio::spawn(async move {
            let came: usize = crowd.join_all().await.into_iter().sum();
            over.store(true, Ordering::Relaxed);
            came
        })
    };
    let mut most = [0; 3];
    let (mut newcomers, mut tries) = (0, 0);
    while !over.load(Ordering::Relaxed) {
        server.serves().await;
        tries += 1;
        newcomers += u64::from(server.serves_somebody_new().await);
        most.iter_mut().zip(held()).for_each(|(most, held)| *most = held.max(*most));
    }
    assert_eq!(within("the crowd", crowd).await.unwrap(), 10_000);
    println!(
        "{newcomers} of {tries} newcomers were served; held before {before:?}, at most {most:?}"
    );
    assert!(newcomers > 0);
    assert!(most[0] < 2000 && most[1] < 1000, "{most:?}");
    assert!(most[2] < before[2] + (256 << 20), "{before:?} {most:?}");
    server.serves_a_new_peer().await;
    server.at_rest().await;
}

impl Server {
    /// Whether an agent that was not connected before is served in the crowd. One that is too
    /// slow makes room for others, and is told at once that the other side hung up.
    async fn serves_somebody_new(&mut self) -> bool {
        let request = self.next();
        let params = self.p.offer(request).await;
        let newcomer = D::start(&self.config, PageOrder::Joint);
        let served = newcomer.fetch(request, &params).await;
        newcomer.at_rest().await;
        if served.is_err() {
            // Unless it had claimed already, and gave that up when it was pushed out.
            let _ = self.d.fetch(request, &params).await;
        }
        let freed = self.p.freed(request).await;
        assert!(served.is_err() || freed == Why::Satisfied, "{freed:?}");
        served.is_ok()
    }
}
