use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; a panic elsewhere while the lock was held is not this caller's fault, and every
/// critical section of this crate leaves its data whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
