//! The one thread that calls the library.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{JoinHandle, yield_now};
use std::time::Instant;

use rustix::thread::{CpuSet, sched_setaffinity};

use super::driver::Shared;
use super::engine::Engine;
use super::native::Native;
use super::order::Order;
use super::pace::{Load, Pace, Step};
use super::seam::Fabric;
use super::{FabricConfig, FabricFacts, OpenError};

/// Orders between two polls.
const ORDERS: usize = 64;

/// What is known of a domain once it is open.
pub(super) type Opened = (FabricFacts, Vec<u8>);

/// Starts the thread, which opens the domain itself: all of it is that thread's own.
pub(super) fn start(
    config: FabricConfig,
    shared: &Arc<Shared>,
    orders: Receiver<Order>,
) -> Result<(JoinHandle<()>, Opened), OpenError> {
    let (opened, answer) = sync_channel(1);
    let shared = Arc::clone(shared);
    let named = std::thread::Builder::new().name("kvferry-fabric".to_owned());
    let thread = named.spawn(move || run(&config, &shared, &orders, &opened));
    let thread = thread.map_err(system("start a thread"))?;
    let gone = || OpenError::System { what: "open the domain", why: "its thread died".to_owned() };
    match answer.recv().unwrap_or_else(|_| Err(gone())) {
        Ok(opened) => Ok((thread, opened)),
        Err(why) => {
            // It has nothing more to do.
            let _ = thread.join();
            Err(why)
        }
    }
}

fn system<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> OpenError {
    move |why| OpenError::System { what, why: why.to_string() }
}

fn run(
    config: &FabricConfig,
    shared: &Shared,
    orders: &Receiver<Order>,
    opened: &SyncSender<Result<Opened, OpenError>>,
) {
    let native = config.core.map_or(Ok(()), bind_to).and_then(|()| Native::open(config));
    let native = match native {
        Ok(native) => native,
        Err(why) => {
            // Whoever opens waits for it.
            let _ = opened.send(Err(why));
            return;
        }
    };
    let facts = native.facts().clone();
    if opened.send(Ok((facts, native.address().to_vec()))).is_ok() {
        let engine = Engine::new(native, Arc::clone(&shared.tally), Arc::clone(&shared.notices));
        serve(engine, shared, orders);
    }
}

fn bind_to(core: usize) -> Result<(), OpenError> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).map_err(system("bind a thread to its core"))
}

fn serve<F: Fabric>(mut engine: Engine<F>, shared: &Shared, orders: &Receiver<Order>) {
    let mut pace = Pace::new(Instant::now());
    let mut woken = false;
    while let Some(obeyed) = obey(&mut engine, orders) {
        // A card that wakes the thread for what a peer does has nothing to report of it.
        let moved = engine.turn() || obeyed || woken;
        woken = false;
        let load = load(&engine, shared);
        match pace.step(Instant::now(), moved, load) {
            // Another thread of a full machine may be what is waited for.
            Step::Spin => yield_now(),
            Step::Sleep(at_most) => {
                woken = engine.sleep(&shared.bell, at_most);
                shared.bell.hush();
            }
        }
    }
}

fn load<F: Fabric>(engine: &Engine<F>, shared: &Shared) -> Load {
    if engine.is_broken() {
        // Orders alone are waited for, and the bell rings for each.
        return Load { busy: false, target: false, wakes: true };
    }
    let busy = engine.is_busy() || shared.attended.load(Ordering::Relaxed) > 0;
    Load { busy, target: engine.is_target(), wakes: engine.fabric.facts().wakes }
}

/// Follows orders; whether there were any, or `None` behind the last one.
fn obey<F: Fabric>(engine: &mut Engine<F>, orders: &Receiver<Order>) -> Option<bool> {
    for count in 0..ORDERS {
        match orders.try_recv() {
            Ok(order) if order.is_last() => return None,
            Ok(order) => order.obeyed(engine),
            Err(TryRecvError::Empty) => return Some(count > 0),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
    Some(true)
}
