//! Leave for readers, where the Yama security module asks for it.

use std::sync::Mutex;

use rustix::process::{PTracer, Pid, set_ptracer};

use crate::sync::lock;

/// Whom this process has given leave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    Nobody,
    One(i32),
    Any,
}

/// The leave belongs to the process, not to an endpoint.
static LEAVE: Mutex<Leave> = Mutex::new(Leave::Nobody);

/// Lets a reader read this process's memory where `kernel.yama.ptrace_scope` is 1, which asks
/// for the consent of the one that is read.
///
/// The system keeps one process only, so a second reader makes it *any*; that the user must be
/// the same, or privileged, holds all the same. Neither is taken back before the process ends:
/// the readers of another endpoint may count on it.
pub(super) fn allow(reader: i32) {
    let mut leave = lock(&LEAVE);
    let next = match *leave {
        Leave::Any => return,
        Leave::One(one) if one == reader => return,
        Leave::Nobody if reader > 0 => Leave::One(reader),
        Leave::Nobody | Leave::One(_) => Leave::Any,
    };
    let tracer = match next {
        Leave::One(one) => Pid::from_raw(one).map_or(PTracer::Any, PTracer::ProcessID),
        Leave::Any | Leave::Nobody => PTracer::Any,
    };
    match set_ptracer(tracer) {
        Ok(()) => *leave = next,
        // Without the module nobody needs leave.
        Err(why) => tracing::trace!(%why, "no leave to read was needed"),
    }
}
