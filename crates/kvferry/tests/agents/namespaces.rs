//! Prefill and decode on two hosts: two network namespaces, joined by a pair of devices.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

use crate::common::{BYTES, D, P, describe};
use crate::secret::proven;
use kvferry::connector::Why;
use kvferry::kv_layout::PageOrder;
use kvferry::{Config, Prefill};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, Sender, channel};

const P_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 213, 7, 1);

/// A network of two hosts, gone when it is dropped.
struct Hosts {
    names: [String; 2],
}

impl Hosts {
    /// `None` where that is not permitted.
    fn new() -> Option<Self> {
        let id = std::process::id();
        let hosts = Self { names: [format!("kvferry-p-{id}"), format!("kvferry-d-{id}")] };
        let [p, d] = &hosts.names;
        let (device, other) = (format!("kvp{id}"), format!("kvd{id}"));
        for name in [p, d] {
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        ip(&format!("-n {p} link add {device} type veth peer name {other} netns {d}"))?;
        ip(&format!("-n {p} address add {P_ADDRESS}/24 dev {device}"))?;
        ip(&format!("-n {d} address add 10.213.7.2/24 dev {other}"))?;
        ip(&format!("-n {p} link set {device} up"))?;
        ip(&format!("-n {d} link set {other} up"))?;
        Some(hosts)
    }

    /// A thread on one of the hosts; those that it starts are there as well.
    fn run(&self, host: usize, work: impl AsyncFnOnce() + Send + 'static) -> JoinHandle<()> {
        let space = File::open(format!("/run/netns/{}", self.names[host])).unwrap();
        thread::spawn(move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(space.as_fd(), kind).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(work());
        })
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

fn ip(arguments: &str) -> Option<()> {
    let mut command = Command::new("ip");
    command.args(arguments.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().ok()?.success().then_some(())
}

/// Offers a request from each of these places, one after the other. Stays until the other side
/// has heard the end, which comes after the blocks are free.
async fn prefill(params: Sender<Value>, mut received: Receiver<()>) {
    let at = |ip| SocketAddr::from((ip, 0));
    let without = Config { listen: at(P_ADDRESS), ..Config::default() };
    let pool = P::start(&Config::default(), PageOrder::Joint).await;
    let refused = Prefill::start(&without, &describe(&pool.engine)).await.err().unwrap();
    assert_eq!(
        refused.to_string(),
        "10.213.7.1 is not a loopback address: listening there needs a secret"
    );
    let exact = Config { listen: at(P_ADDRESS), ..proven() };
    let advertise = Some(P_ADDRESS.to_string());
    let everywhere = Config { listen: at(Ipv4Addr::UNSPECIFIED), advertise, ..proven() };
    for config in [exact, everywhere] {
        let mut p = P::start(&config, PageOrder::Joint).await;
        params.send(p.offer(1).await).await.unwrap();
        assert_eq!(p.freed(1).await, Why::Satisfied);
        received.recv().await.unwrap();
        p.at_rest().await;
    }
}

async fn decode(mut params: Receiver<Value>, received: Sender<()>) {
    while let Some(params) = params.recv().await {
        let port = &params["remote_port"];
        let unproven = D::start(&Config::default(), PageOrder::Joint);
        assert_eq!(
            unproven.claim(1, &params).await.err().unwrap().to_string(),
            format!("10.213.7.1:{port} is not a loopback address: connecting there needs a secret")
        );
        let listed = |list: &str| Config { allow: Some(list.parse().unwrap()), ..proven() };
        let elsewhere = D::start(&listed("10.213.8.0/24"), PageOrder::Joint);
        assert_eq!(
            elsewhere.claim(1, &params).await.err().unwrap().to_string(),
            format!(
                "10.213.7.1:{port} is at 10.213.7.1, which is not on the list of allowed addresses"
            )
        );
        let d = D::start(&listed("10.213.7.0/24"), PageOrder::Joint);
        assert_eq!(d.fetch(1, &params).await.unwrap(), BYTES);
        received.send(()).await.unwrap();
        d.at_rest().await;
    }
}

#[test]
fn a_hand_off_between_two_hosts() {
    let Some(hosts) = Hosts::new() else {
        println!("skipped a_hand_off_between_two_hosts: no permission to make network namespaces");
        return;
    };
    let ((params, offered), (received, heard)) = (channel(1), channel(1));
    let d = hosts.run(1, async move || decode(offered, received).await);
    let p = hosts.run(0, async move || prefill(params, heard).await);
    let ended = [p.join(), d.join()];
    assert!(ended.iter().all(Result::is_ok));
}
