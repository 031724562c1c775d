//! What becomes of the process's signal handlers when the library is loaded and used.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use libc::{SIGABRT, SIGBUS, SIGILL, SIGINT, SIGSEGV, SIGTERM, c_int};

/// Those that libraries below libfabric take over when they are loaded, to write a backtrace, and
/// that its providers take over when something is opened, to remove shared memory. A process would
/// end with code 1 and without a core where it should have been killed, and Rust's word about an
/// overflowing stack would be lost.
const TAKEN: [c_int; 6] = [SIGILL, SIGABRT, SIGBUS, SIGSEGV, SIGTERM, SIGINT];

/// Held while others' handlers may be set: of two at a time, one would keep what the other's
/// library has set.
static KEEPING: Mutex<()> = Mutex::new(());

/// Runs `load`, and puts the handlers of the process back that it has replaced. One thread does so
/// at a time, and not within itself.
///
/// There is a variable that keeps these libraries from it (`IPATH_NO_BACKTRACE`), and it is not
/// set: in a process with threads, which may be reading the environment, that is no sound thing to
/// do, and to put the handlers back is enough. A handler that another thread sets meanwhile is
/// lost.
pub fn keeping_handlers<T>(load: impl FnOnce() -> T) -> T {
    let _keeping = KEEPING.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = TAKEN.map(|signal| (signal, handler(signal)));
    let result = load();
    for (signal, handler) in kept {
        if let Some(handler) = handler {
            restore(signal, &handler);
        }
    }
    result
}

fn handler(signal: c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::zeroed();
    // SAFETY: without a new action the call only fills in the old one, and it is initialised
    // where the call succeeds.
    unsafe {
        let failed = libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        (failed == 0).then(|| action.assume_init())
    }
}

fn restore(signal: c_int, action: &libc::sigaction) {
    // SAFETY: this is what the process itself had set for this signal, unchanged. It cannot fail
    // where reading it did not.
    unsafe { libc::sigaction(signal, action, ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignore(signal: c_int) {
        // SAFETY: no handler is called, and these are sent by nobody here.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }

    #[test]
    fn what_several_threads_load_leaves_no_handler() {
        let before = TAKEN.map(|signal| handler(signal).unwrap().sa_sigaction);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..200).for_each(|_| {
                        keeping_handlers(|| [SIGINT, SIGTERM].map(ignore));
                    })
                });
            }
        });
        assert_eq!(TAKEN.map(|signal| handler(signal).unwrap().sa_sigaction), before);
    }
}
