//! What every provider needs of a host: descriptors, memory that may be locked, cores.

use super::finding::Finding;
use crate::output;

/// Far above what one agent takes: a peer has a control channel and up to 16 sockets.
const DESCRIPTORS: u64 = 4096;

pub(super) fn look() -> Vec<Finding> {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    vec![descriptors(&limits), locked(&limits), self::cores(cores)]
}

/// The soft limit of that name in the text of `/proc/self/limits`; none is `unlimited`.
fn soft(limits: &str, name: &str) -> Option<Option<u64>> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

pub(super) fn descriptors(limits: &str) -> Finding {
    match soft(limits, "Max open files") {
        Some(Some(most)) if most < DESCRIPTORS => Finding::warn(
            format!("{} descriptors may be open: few peers fit", output::count(most)),
            format!("ulimit -n {DESCRIPTORS}, or LimitNOFILE= in the unit"),
        ),
        Some(Some(most)) => Finding::ok(format!("{} descriptors may be open", output::count(most))),
        Some(None) => Finding::ok("as many descriptors may be open as are wanted"),
        None => Finding::warn("RLIMIT_NOFILE cannot be read", "see that /proc is mounted"),
    }
}

/// What a network card reads by itself must be locked; TCP locks nothing.
pub(super) fn locked(limits: &str) -> Finding {
    match soft(limits, "Max locked memory") {
        Some(None) => Finding::ok("as much memory may be locked as is wanted (RLIMIT_MEMLOCK)"),
        Some(Some(most)) => Finding::warn(
            format!("{} of memory may be locked: too little for RDMA", output::bytes(most)),
            "ulimit -l unlimited, LimitMEMLOCK=infinity in the unit, or docker run --ulimit \
             memlock=-1; tcp and shm need none",
        ),
        None => Finding::warn("RLIMIT_MEMLOCK cannot be read", "see that /proc is mounted"),
    }
}

pub(super) fn cores(cores: usize) -> Finding {
    match cores {
        1 => Finding::warn(
            "one core: sending and receiving take turns on it",
            "give this process two or more",
        ),
        cores => Finding::ok(format!("{cores} cores")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    const TEXT: &str = "\
Limit                     Soft Limit           Hard Limit           Units     
Max open files            1024                 1048576              files     
Max locked memory         8388608              unlimited            bytes     
";

    #[test]
    fn limits_as_the_system_writes_them() {
        assert_eq!(descriptors(TEXT).what, "1,024 descriptors may be open: few peers fit");
        assert_eq!(locked(TEXT).what, "8.0 MiB of memory may be locked: too little for RDMA");
        let wide = TEXT.replace("1024  ", "65536 ").replace("8388608  ", "unlimited");
        assert_eq!(descriptors(&wide), Finding::ok("65,536 descriptors may be open"));
        assert_eq!(locked(&wide).status, Status::Ok);
        assert_eq!(descriptors("").status, Status::Warn);
        assert_eq!(locked("Max locked memory").status, Status::Warn);
    }

    #[test]
    fn one_core_is_few() {
        assert_eq!((cores(1).status, cores(2)), (Status::Warn, Finding::ok("2 cores")));
    }
}
