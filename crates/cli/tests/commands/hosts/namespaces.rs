//! Two hosts that are two network namespaces, joined by a pair of devices.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{four, right, role, served, two};
use crate::common::{SECRET, Said, command, finish, first_line, with_secrets};

const LISTEN: [&str; 2] = ["--listen", "10.213.8.1:7000"];
const CONNECT: [&str; 2] = ["--connect", "10.213.8.1:7000"];

/// A network of two hosts, gone when it is dropped.
struct Network {
    names: [String; 2],
}

impl Network {
    /// `None` where that is not permitted.
    fn new() -> Option<Self> {
        let id = std::process::id();
        let hosts = Self { names: [format!("kvferry-cp-{id}"), format!("kvferry-cd-{id}")] };
        let [p, d] = &hosts.names;
        let (device, other) = (format!("kvcp{id}"), format!("kvcd{id}"));
        for name in [p, d] {
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        ip(&format!("-n {p} link add {device} type veth peer name {other} netns {d}"))?;
        ip(&format!("-n {p} address add 10.213.8.1/24 dev {device}"))?;
        ip(&format!("-n {d} address add 10.213.8.2/24 dev {other}"))?;
        ip(&format!("-n {p} link set {device} up"))?;
        ip(&format!("-n {d} link set {other} up"))?;
        Some(hosts)
    }

    /// The binary on one of the hosts.
    fn command(&self, host: usize, folder: &Path, arguments: &[&str]) -> Command {
        let here = command(folder, arguments);
        let mut there = Command::new("ip");
        there.args(["netns", "exec", &self.names[host]]).arg(here.get_program());
        there.args(here.get_args()).current_dir(folder).env_remove("RUST_LOG");
        there.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        there
    }
}

impl Drop for Network {
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

fn refused(said: &Said, error: &str) {
    let lines: Vec<&str> = said.stderr.lines().collect();
    assert_eq!((said.code, lines[0]), (Some(5), format!("error: {error}").as_str()), "{said:?}");
    assert!(lines.len() == 2 && lines[1].starts_with(" help: "), "{said:?}");
}

#[test]
fn a_hand_off_between_two_hosts() {
    let Some(network) = Network::new() else {
        println!("skipped a_hand_off_between_two_hosts: no permission to make network namespaces");
        return;
    };
    let folder = with_secrets();
    let p = |more: &[&'static str]| {
        network.command(0, folder.path(), &role("full.json", "prefill", &two(more)))
    };
    let d = |more: &[&str]| {
        let more = [&CONNECT, more].concat();
        finish(&mut network.command(1, folder.path(), &role("full.json", "decode", &more)))
    };
    refused(
        &finish(&mut p(&LISTEN)),
        "10.213.8.1 is not a loopback address: listening there needs a secret",
    );
    let (line, running) = first_line(&mut p(&[LISTEN, SECRET].concat()));
    assert_eq!(line, "listening on 10.213.8.1:7000\n");
    refused(&d(&[]), "10.213.8.1:7000 is not a loopback address: connecting there needs a secret");
    refused(
        &d(&[&SECRET[..], &["--allow", "10.213.9.0/24,10.213.8.2"]].concat()),
        "10.213.8.1:7000 is at 10.213.8.1, which is not on the list of allowed addresses",
    );
    let allowed = four(&[&SECRET[..], &["--allow", "10.213.8.0/24"]].concat());
    right(&d(&allowed).json());
    served(running, 3);
}
