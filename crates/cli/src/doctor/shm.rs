//! Memory that two processes of one host share, or read of each other.

use super::finding::{Finding, chosen, number};
use super::tcp::moved;

/// Where the processes of the whole host are: the number of the namespace that the kernel
/// starts with (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// `CAP_SYS_PTRACE` in a mask of capabilities.
const MAY_TRACE: u64 = 1 << 19;

const NAME: &str = "shm";

pub(super) fn look() -> Vec<Finding> {
    let file = |path: &str| std::fs::read_to_string(path).ok();
    let pages = "/sys/kernel/mm/transparent_hugepage";
    let mend = "allow process_vm_readv (in a container: --cap-add SYS_PTRACE), see below";
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let text = |path: &str| file(path).unwrap_or_default();
    vec![
        moved(NAME, "out of another endpoint's memory", mend),
        memfd(&text("/proc/sys/kernel/osrelease")),
        trace(file("/proc/sys/kernel/yama/ptrace_scope").as_deref(), &text("/proc/self/status")),
        pid_namespace(&namespace.to_string_lossy()),
        transparent(&text(&format!("{pages}/enabled"))),
        shared_transparent(&text(&format!("{pages}/shmem_enabled"))),
        reserved(&text("/proc/sys/vm/nr_hugepages")),
    ]
}

/// From the kernel's release, such as `6.1.0-28-amd64`.
pub(super) fn memfd(release: &str) -> Finding {
    let mut parts = release.split(|letter: char| !letter.is_ascii_digit());
    let mut next = || parts.next().and_then(number::<u32>);
    let version = next().zip(next());
    let shown = release.trim();
    match version {
        Some(version) if version >= (3, 17) => Finding::ok(format!(
            "memory can be shared by file descriptor (memfd, Linux {shown}); /dev/shm is not needed"
        )),
        _ => Finding::missing(
            format!("no memory can be shared by file descriptor: Linux {shown} has no memfd"),
            "run Linux 3.17 or later",
        ),
    }
}

/// Who may read another process's memory: `scope` is Yama's number, where it is there.
pub(super) fn trace(scope: Option<&str>, status: &str) -> Finding {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let may = mask & MAY_TRACE != 0;
    let mend = "sysctl -w kernel.yama.ptrace_scope=0, or let the engine keep its KV cache in \
                kvferry's own pool, which needs no such right";
    match (scope.map(number::<u8>), may) {
        (None, _) => Finding::ok("a process may read the memory of others of its user (no Yama)"),
        (Some(Some(0)), _) => Finding::ok(
            "a process may read the memory of others of its user (kernel.yama.ptrace_scope = 0)",
        ),
        (Some(Some(scope @ 1..=2)), true) => Finding::ok(format!(
            "this process may read the memory of others, with CAP_SYS_PTRACE \
             (kernel.yama.ptrace_scope = {scope})"
        )),
        (Some(Some(1)), false) => Finding::warn(
            "a process may read the memory of its descendants alone \
             (kernel.yama.ptrace_scope = 1)",
            mend,
        ),
        (Some(Some(2)), false) => Finding::warn(
            "no process without CAP_SYS_PTRACE may read the memory of another \
             (kernel.yama.ptrace_scope = 2)",
            mend,
        ),
        (Some(_), _) => Finding::warn(
            "no process may read the memory of another (kernel.yama.ptrace_scope = 3)",
            "start the host without it: the number cannot be lowered while it runs",
        ),
    }
}

/// From the link `/proc/self/ns/pid`.
pub(super) fn pid_namespace(link: &str) -> Finding {
    let inode = link.strip_prefix("pid:[").and_then(|rest| rest.strip_suffix(']'));
    match inode.and_then(number::<u64>) {
        Some(FIRST_PID_NAMESPACE) => {
            Finding::ok("processes are numbered as on the whole host (no PID namespace)")
        }
        Some(_) => Finding::warn(
            "processes are numbered in a PID namespace of their own, as in a container",
            "let both engines' containers share one: docker run --pid=container:NAME, or \
             shareProcessNamespace: true in a pod",
        ),
        None => Finding::warn(
            "it cannot be told how processes are numbered",
            "see that /proc is mounted",
        ),
    }
}

/// From `transparent_hugepage/enabled`.
pub(super) fn transparent(text: &str) -> Finding {
    match chosen(text) {
        Some(mode @ ("always" | "madvise")) => {
            Finding::ok(format!("private memory may have huge pages (transparent: {mode})"))
        }
        other => Finding::warn(
            format!("private memory has no huge pages (transparent: {})", other.unwrap_or("none")),
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
    }
}

/// From `transparent_hugepage/shmem_enabled`.
pub(super) fn shared_transparent(text: &str) -> Finding {
    match chosen(text) {
        Some(mode @ ("always" | "within_size" | "advise" | "force")) => {
            Finding::ok(format!("shared memory may have huge pages (transparent: {mode})"))
        }
        other => Finding::warn(
            format!("shared memory has no huge pages (transparent: {})", other.unwrap_or("none")),
            "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
        ),
    }
}

/// From `vm.nr_hugepages`.
pub(super) fn reserved(text: &str) -> Finding {
    match number::<u64>(text) {
        Some(pages) if pages > 0 => Finding::ok(format!("{pages} huge pages are reserved")),
        _ => Finding::ok("no huge pages are reserved (vm.nr_hugepages = 0); none are needed"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn memory_by_descriptor_came_with_a_kernel() {
        for (release, status) in [
            ("6.1.0-28-amd64\n", Status::Ok),
            ("3.17.0", Status::Ok),
            ("3.10.0-1160.el7", Status::Missing),
            ("", Status::Missing),
            ("what?", Status::Missing),
        ] {
            assert_eq!(memfd(release).status, status, "{release}");
        }
    }

    #[test]
    fn who_may_read_whose_memory() {
        let without = "Name:\tx\nCapEff:\t0000000000000000\n";
        let with = "CapEff:\t000001ffffffffff\n";
        for (scope, status, expected) in [
            (None, without, Status::Ok),
            (Some("0\n"), without, Status::Ok),
            (Some("1\n"), without, Status::Warn),
            (Some("1\n"), with, Status::Ok),
            (Some("2\n"), without, Status::Warn),
            (Some("2\n"), with, Status::Ok),
            (Some("3\n"), with, Status::Warn),
            (Some("odd"), without, Status::Warn),
            (Some("1"), "", Status::Warn),
        ] {
            assert_eq!(trace(scope, status).status, expected, "{scope:?} {status}");
        }
    }

    #[test]
    fn a_container_counts_for_itself() {
        assert_eq!(pid_namespace("pid:[4026531836]").status, Status::Ok);
        let inside = pid_namespace("pid:[4026532198]");
        assert_eq!(inside.status, Status::Warn);
        assert!(inside.mend.unwrap().contains("--pid=container:NAME"));
        assert_eq!(pid_namespace("").status, Status::Warn);
    }

    #[test]
    fn huge_pages_as_the_system_says() {
        for (text, status) in [
            ("always [madvise] never\n", Status::Ok),
            ("[always] madvise never", Status::Ok),
            ("always madvise [never]", Status::Warn),
            ("", Status::Warn),
        ] {
            assert_eq!(transparent(text).status, status, "{text}");
        }
        let shared = "always within_size advise [never] deny force\n";
        assert_eq!(shared_transparent(shared).status, Status::Warn);
        let shared = "always within_size [advise] never deny force\n";
        assert_eq!(shared_transparent(shared).status, Status::Ok);
        assert!(reserved("512\n").what.starts_with("512 huge pages"));
        assert!(reserved("0\n").what.starts_with("no huge pages"));
    }
}
