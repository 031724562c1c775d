//! The children: engines and their agents, one a process.

mod decode;
mod prefill;

use std::fs::File;
use std::io::{BufRead, Write};
use std::os::fd::AsFd;

use kvferry::Counts;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::spec::{CHILD, Part, Spec};

/// Lines of the test, until it closes the pipe.
type Orders = UnboundedReceiver<Value>;

/// Not a test but the start of a child, where its variable is set. Ends when the test does,
/// also where that ends so suddenly that it cannot say so, and also while this is stopped.
#[test]
fn child() {
    let Ok(spec) = std::env::var(CHILD) else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let spec = Spec::from_json(&serde_json::from_str(&spec).unwrap());
    if let Some(space) = &spec.space {
        // Before there are other threads: they come from this one, and live where it does.
        let space = File::open(space).unwrap();
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(space.as_fd(), kind).unwrap();
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(async {
        let orders = orders();
        match spec.part {
            Part::Prefill => prefill::run(&spec, orders).await,
            Part::Decode => decode::run(&spec, orders).await,
        }
    });
    // A task that still waits for a peer is no reason to stay.
    std::process::exit(0);
}

fn orders() -> Orders {
    let (given, orders) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let order = serde_json::from_str(&line.unwrap()).unwrap();
            if given.send(order).is_err() {
                break;
            }
        }
    });
    orders
}

/// Says a line, past the runner of tests, which would keep it; after a line break, since that
/// runner has begun a line of its own.
fn say(what: &Value) {
    let mut stdout = std::io::stdout().lock();
    // The test may be gone, and this process as good as gone with it.
    let _ = writeln!(stdout, "\n{what}").and_then(|()| stdout.flush());
}

/// What an engine and its agent hold. The pool is inspected once all of it is back.
fn state(engine: &sim::Engine, counts: Counts) -> Value {
    let Counts { leases, claims, tokens, early, receives, quarantined, engines, .. } = counts;
    let (free, capacity) = (engine.free_blocks(), engine.capacity());
    let fault = (free == capacity).then(|| engine.inspect_pool().err()).flatten();
    json!({ "state": {
        "held": [leases, claims, tokens, early, receives, quarantined],
        "engines": engines,
        "used": capacity - free,
        "fault": fault.map(|fault| fault.to_string()),
    }})
}
