//! The coverage-guided engine over one target, named by `KVFERRY_FUZZ`. Started by
//! `cargo xtask fuzz`, which builds it with the counters that it needs.

#![forbid(unsafe_code)]
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<Option<fuzz::Target>> =
    LazyLock::new(|| fuzz::target(&std::env::var("KVFERRY_FUZZ").ok()?));

fuzz_target!(|input: &[u8]| {
    match &*TARGET {
        Some(target) => (target.run)(input),
        None => std::process::exit(2),
    }
});
