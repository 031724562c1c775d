//! Two hosts with a link between them that a test may break: two network namespaces, joined by a
//! pair of devices.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kvferry::connector::Bounds;

use crate::spec::{Part, Spec};
use crate::world::{Descriptors, World};

const P_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 213, 9, 1);
const D_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 213, 9, 2);

/// Gone when it is dropped.
pub struct Hosts {
    names: [String; 2],
    devices: [String; 2],
}

impl Hosts {
    /// `None`, said by name and with the reason, where that is not permitted.
    pub fn new(scenario: &str) -> Option<Self> {
        match Self::build() {
            Ok(hosts) => Some(hosts),
            Err(why) => {
                crate::form::report(scenario, format!("skipped, no network namespaces: {why}"));
                None
            }
        }
    }

    fn build() -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let hosts = Self {
            names: ["p", "d"].map(|part| format!("kvferry-chaos-{part}-{id}")),
            devices: ["p", "d"].map(|part| format!("kc{part}{id}")),
        };
        let ([p, d], [near, far]) = (&hosts.names, &hosts.devices);
        for name in [p, d] {
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        ip(&format!("-n {p} link add {near} type veth peer name {far} netns {d}"))?;
        ip(&format!("-n {p} address add {P_ADDRESS}/24 dev {near}"))?;
        ip(&format!("-n {d} address add {D_ADDRESS}/24 dev {far}"))?;
        ip(&format!("-n {p} link set {near} up"))?;
        ip(&format!("-n {d} link set {far} up"))?;
        Ok(hosts)
    }

    /// An engine on each of them.
    pub fn world(&self, bounds: Bounds, limit: Duration) -> (World, Descriptors) {
        World::of(self.specs(P_ADDRESS, bounds), limit)
    }

    /// What these engines are told; the prefill engine listens there.
    pub fn specs(&self, listen: Ipv4Addr, bounds: Bounds) -> [Spec; 2] {
        let [p, d] = self.spaces().map(Some);
        [
            Spec { listen: (listen, 0).into(), space: p, ..Spec::new(Part::Prefill, bounds) },
            Spec { space: d, ..Spec::new(Part::Decode, bounds) },
        ]
    }

    pub fn spaces(&self) -> [PathBuf; 2] {
        self.names.each_ref().map(|name| PathBuf::from(format!("/run/netns/{name}")))
    }

    /// What changes the cable of the decode engine's host.
    pub fn cable(&self, state: &str) -> impl FnOnce() + Send + use<> {
        change(format!("-n {} link set {} {state}", self.names[1], self.devices[1]))
    }

    /// From then on nothing that a host sends arrives: its frames go to nobody's card. All that
    /// is sent to it still does.
    pub fn mute(&self, part: Part) -> impl FnOnce() + Send + use<> {
        let (name, device, other) = self.end(part);
        let nobody = "lladdr 02:00:00:00:00:99";
        change(format!("-n {name} neigh replace {other} {nobody} dev {device} nud permanent"))
    }

    /// It looks for the other's card anew.
    pub fn unmute(&self, part: Part) -> impl FnOnce() + Send + use<> {
        let (name, device, other) = self.end(part);
        change(format!("-n {name} neigh del {other} dev {device}"))
    }

    /// Both ends delay and lose what they send; an error where the kernel cannot.
    pub fn worsen(&self, how: &str) -> Result<(), String> {
        for part in [Part::Prefill, Part::Decode] {
            let (name, device, _) = self.end(part);
            run("tc", &format!("-n {name} qdisc add dev {device} root netem {how}"))?;
        }
        Ok(())
    }

    fn end(&self, part: Part) -> (&str, &str, Ipv4Addr) {
        let (index, other) = match part {
            Part::Prefill => (0, D_ADDRESS),
            Part::Decode => (1, P_ADDRESS),
        };
        (&self.names[index], &self.devices[index], other)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

fn change(arguments: String) -> impl FnOnce() + Send {
    move || ip(&arguments).unwrap()
}

fn ip(arguments: &str) -> Result<(), String> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &str) -> Result<(), String> {
    let output = Command::new(program).args(arguments.split(' ')).output();
    let output = output.map_err(|why| format!("{program}: {why}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let refused = || format!("{program}: {}", said.trim());
    output.status.success().then_some(()).ok_or_else(refused)
}
