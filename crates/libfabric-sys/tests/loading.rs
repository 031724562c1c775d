//! The library is loaded in processes of their own, for it stays loaded.
//!
//! `KVFERRY_LIBFABRIC` may name the files to try, with colons between them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::io::Write;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use libfabric_sys::{LoadError, Version, keeping_handlers, load};

/// What a child process is to load; empty for what the machine has.
const CHILD: &str = "KVFERRY_TEST_LOAD";

fn say(line: &str) {
    let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
}

/// Those that are named, and the machine's.
fn libraries() -> Vec<String> {
    let named = std::env::var("KVFERRY_LIBFABRIC").unwrap_or_default();
    named.split(':').filter(|name| !name.is_empty()).chain([""]).map(str::to_owned).collect()
}

/// Runs one test of this file in a process of its own.
fn child(test: &str, library: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(CHILD, library);
    command.output().unwrap()
}

/// What this process is to load, if it is a child.
fn asked() -> Option<Option<PathBuf>> {
    let library = std::env::var(CHILD).ok()?;
    Some((!library.is_empty()).then(|| PathBuf::from(library)))
}

fn in_children(test: &str) {
    for library in libraries() {
        let output = child(test, &library);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{library}: {said}{complaints}");
        said.lines().filter(|line| line.contains("skipped")).for_each(say);
    }
}

/// The addresses of the handlers that the system may call.
fn handlers() -> Vec<usize> {
    let signals =
        [libc::SIGILL, libc::SIGABRT, libc::SIGBUS, libc::SIGSEGV, libc::SIGTERM, libc::SIGINT];
    let read = |signal| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: without a new action the call fills in the old one.
        unsafe {
            assert_eq!(libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()), 0);
            action.assume_init().sa_sigaction
        }
    };
    signals.into_iter().map(read).collect()
}

/// Loads what is asked for and uses it once, or says why not.
fn used(library: Option<&Path>) -> bool {
    let library = match load(library) {
        Ok(library) => library,
        Err(why) => {
            assert!(library.is_none(), "{why}");
            say(&format!("skipped: {why}"));
            return false;
        }
    };
    // All that there is.
    keeping_handlers(|| {
        let mut found = std::ptr::null_mut();
        let version = library.version().interface().packed();
        // SAFETY: without hints and names; what is found is given back.
        unsafe {
            let none = std::ptr::null();
            (library.getinfo)(version, none, none, 0, std::ptr::null(), &raw mut found);
            if !found.is_null() {
                (library.freeinfo)(found);
            }
        }
    });
    true
}

#[test]
fn the_handlers_of_the_process_stay_its_own() {
    let Some(library) = asked() else {
        return in_children("the_handlers_of_the_process_stay_its_own");
    };
    let before = handlers();
    used(library.as_deref());
    assert_eq!(handlers(), before);
}

#[test]
fn a_process_has_one_library() {
    let Some(library) = asked() else { return in_children("a_process_has_one_library") };
    if !used(library.as_deref()) {
        return;
    }
    let loaded = load(None).unwrap();
    assert!(std::ptr::eq(load(library.as_deref()).unwrap(), loaded));
    if library.is_none() && loaded.file().ends_with("libfabric.so.1") {
        assert!(std::ptr::eq(load(Some(Path::new("libfabric.so.1"))).unwrap(), loaded));
    }
    assert!(loaded.version() >= Version::OLDEST, "{}", loaded.version());
    assert!(loaded.words(-libc::EAGAIN).contains("temporarily"), "{}", loaded.words(-libc::EAGAIN));
    assert!(std::ptr::eq(load(Some(loaded.file())).unwrap(), loaded));
    let other = Path::new("/nowhere/libfabric.so.1");
    let error = load(Some(other)).err().unwrap();
    let expected = LoadError::Another { loaded: loaded.file().to_owned(), asked: other.to_owned() };
    assert_eq!(error, expected);
}

#[test]
fn a_file_that_is_not_there_is_named_with_the_way_out() {
    if asked().is_none() {
        let output = child("a_file_that_is_not_there_is_named_with_the_way_out", "/nowhere/a.so");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let error = load(asked().unwrap().as_deref()).err().unwrap();
    let LoadError::NotHere { tried } = &error else { panic!("{error:?}") };
    assert_eq!(tried.len(), 1);
    let text = error.to_string();
    assert!(text.contains("/nowhere/a.so") && text.contains("install"), "{text}");
}

#[test]
fn a_library_of_another_kind_is_refused() {
    if asked().is_none() {
        let output = child("a_library_of_another_kind_is_refused", "libc.so.6");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let error = load(asked().unwrap().as_deref()).err().unwrap();
    let file = PathBuf::from("libc.so.6");
    assert_eq!(error, LoadError::NoFunction { file, name: "fi_version" });
}

/// A program that uses this crate starts on a machine without the library.
#[test]
fn nothing_names_the_library_before_it_is_asked_for() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("libfabric.so"), "{maps}");
    let Ok(output) = Command::new("ldd").arg(std::env::current_exe().unwrap()).output() else {
        return say("skipped: nothing_names_the_library: there is no ldd");
    };
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(listed.contains("libc.so") && !listed.contains("libfabric"), "{listed}");
}
