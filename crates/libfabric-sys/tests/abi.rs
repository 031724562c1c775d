//! What was written by hand is compared with what the C compiler makes of the machine's headers.

#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_sign_loss, reason = "a test")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use libfabric_sys::{abi, constants};

/// A number of ours, and the C expression that must have the same value.
struct Same {
    expression: String,
    value: u64,
    /// The first minor version of 1.x whose headers know it.
    since: u32,
}

macro_rules! offsets {
    ($since:literal: $($structure:ident { $($field:ident),* $(,)? })*) => {
        vec![$($(Same {
            // A keyword of Rust has a line behind it.
            expression: format!(
                "offsetof(struct {}, {})",
                stringify!($structure),
                stringify!($field).trim_end_matches('_')
            ),
            value: offset_of!(abi::$structure, $field) as u64,
            since: $since,
        }),*),*]
    };
}

macro_rules! sizes {
    ($($structure:ident),* $(,)?) => {
        vec![$(Same {
            expression: format!("sizeof(struct {})", stringify!($structure)),
            value: size_of::<abi::$structure>() as u64,
            since: 17,
        }),*]
    };
}

macro_rules! numbers {
    ($since:literal: $($name:ident),* $(,)?) => {
        vec![$(Same {
            expression: format!("(uint64_t) {}", stringify!($name)),
            value: constants::$name as u64,
            since: $since,
        }),*]
    };
}

fn structures() -> Vec<Same> {
    offsets! { 17:
        fid { fclass, context, ops }
        fi_ops { size, close, bind, control }
        fi_info {
            next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr, handle,
            tx_attr, rx_attr, ep_attr, domain_attr, fabric_attr, nic,
        }
        fi_tx_attr {
            caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit,
            rma_iov_limit, tclass,
        }
        fi_rx_attr {
            caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit,
        }
        fi_ep_attr { type_, protocol, protocol_version, max_msg_size }
        fi_domain_attr {
            domain, name, threading, control_progress, data_progress, resource_mgmt, av_type,
            mr_mode, mr_key_size, cq_data_size,
        }
        fi_fabric_attr { fabric, name, prov_name, prov_version, api_version }
        fid_fabric { fid, ops, api_version }
        fid_domain { fid, ops, mr }
        fid_mr { fid, mem_desc, key }
        fi_mr_attr {
            mr_iov, iov_count, access, offset, requested_key, context, auth_key_size, auth_key,
            iface, device,
        }
        fi_av_attr { type_, rx_ctx_bits, count, ep_per_node, name, map_addr, flags }
        fid_av { fid, ops }
        fi_cq_attr { size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set }
        fid_cq { fid, ops }
        fi_cq_data_entry { op_context, flags, len, buf, data }
        fi_cq_err_entry {
            op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data, err_data_size,
        }
        fid_ep { fid, ops, cm, msg, rma }
        fi_context2 { internal }
    }
}

fn tables() -> Vec<Same> {
    offsets! { 17:
        fi_ops_fabric { size, domain, passive_ep, eq_open, wait_open, trywait }
        fi_ops_domain { size, av_open, cq_open, endpoint }
        fi_ops_mr { size, reg, regv, regattr }
        fi_ops_av { size, insert, insertsvc, insertsym, remove }
        fi_ops_cq { size, read, readfrom, readerr, sread, sreadfrom, signal, strerror }
        fi_ops_cm { size, setname, getname }
        fi_ops_rma { size, read, readv, readmsg, write, writev, writemsg, inject, writedata }
    }
}

/// What the library writes in whole, into memory of ours.
fn whole() -> Vec<Same> {
    sizes![fi_cq_data_entry, fi_context2]
}

fn values() -> Vec<Same> {
    numbers! { 17:
        FI_MSG, FI_RMA, FI_READ, FI_WRITE, FI_RECV, FI_TRANSMIT, FI_REMOTE_READ, FI_REMOTE_WRITE,
        FI_REMOTE_CQ_DATA, FI_HMEM, FI_SOURCE, FI_CONTEXT, FI_CONTEXT2, FI_MR_LOCAL,
        FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, FI_MR_PROV_KEY, FI_MR_ENDPOINT, FI_MR_HMEM, FI_SOCKADDR,
        FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_ADDR_STR, FI_ADDR_NOTAVAIL, FI_AV_TABLE,
        FI_CQ_FORMAT_DATA, FI_EP_RDM, FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL, FI_THREAD_DOMAIN,
        FI_WAIT_NONE, FI_WAIT_FD, FI_HMEM_CUDA, FI_GETWAIT, FI_ENABLE, FI_EAVAIL, FI_ENOKEY,
        FI_EOVERRUN,
    }
}

/// What later versions have added.
fn additions() -> Vec<Same> {
    let mut all = offsets! { 20: fi_mr_dmabuf { fd, offset, len, base_addr } };
    all.extend(numbers! { 20: FI_MR_DMABUF });
    all
}

/// What the library reads in whole out of memory of ours, which must be at least as large.
const ROOMY: [(&str, usize); 4] = [
    ("fi_mr_attr", size_of::<abi::fi_mr_attr>()),
    ("fi_av_attr", size_of::<abi::fi_av_attr>()),
    ("fi_cq_attr", size_of::<abi::fi_cq_attr>()),
    ("fi_cq_err_entry", size_of::<abi::fi_cq_err_entry>()),
];

fn all() -> Vec<Same> {
    [structures(), tables(), whole(), values(), additions()].into_iter().flatten().collect()
}

fn program(all: &[Same]) -> String {
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <rdma/fabric.h>\n\
         #include <rdma/fi_domain.h>\n#include <rdma/fi_endpoint.h>\n#include <rdma/fi_eq.h>\n\
         #include <rdma/fi_cm.h>\n#include <rdma/fi_rma.h>\n#include <rdma/fi_errno.h>\n\
         int main(void) {\n",
    );
    let sizes = ROOMY.map(|(name, _)| (format!("sizeof(struct {name})"), 17));
    let same = all.iter().map(|same| (same.expression.clone(), same.since));
    for (expression, since) in same.chain(sizes) {
        writeln!(text, "#if FI_MAJOR_VERSION > 1 || FI_MINOR_VERSION >= {since}").unwrap();
        writeln!(
            text,
            "printf(\"%s=%llu\\n\", \"{expression}\", (unsigned long long) ({expression}));"
        )
        .unwrap();
        text.push_str("#endif\n");
    }
    text.push_str("return 0; }\n");
    text
}

/// What the program says, or why there is none.
fn answers(all: &[Same]) -> Result<BTreeMap<String, u64>, &'static str> {
    let cc = |arguments: &[&str]| Command::new("cc").args(arguments).output();
    if cc(&["--version"]).is_err() {
        return Err("there is no cc");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (probe, source, binary) = (path("probe.c"), path("layout.c"), path("layout"));
    std::fs::write(&probe, "#include <rdma/fabric.h>\n").unwrap();
    if !cc(&["-fsyntax-only", &probe]).unwrap().status.success() {
        return Err("there is no rdma/fabric.h, which libfabric-dev brings");
    }
    std::fs::write(&source, program(all)).unwrap();
    let compiled = cc(&["-o", &binary, &source]).unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let said = String::from_utf8(Command::new(binary).output().unwrap().stdout).unwrap();
    let lines = said.lines().map(|line| line.rsplit_once('=').unwrap());
    Ok(lines.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect())
}

#[test]
fn what_is_written_here_is_what_the_headers_say() {
    let all = all();
    let answers = match answers(&all) {
        Ok(answers) => answers,
        Err(why) => {
            let line = format!("skipped: what_is_written_here_is_what_the_headers_say: {why}\n");
            let _ = std::io::stdout().write_all(line.as_bytes());
            return;
        }
    };
    let mut compared = 0;
    for same in &all {
        // Older headers do not know what came later.
        if let Some(&value) = answers.get(&same.expression) {
            assert_eq!(same.value, value, "{}", same.expression);
            compared += 1;
        }
    }
    assert!(compared > 150, "only {compared} were compared");
    for (name, room) in ROOMY {
        let needed = answers[&format!("sizeof(struct {name})")];
        assert!(needed <= room as u64, "{name} has {needed} bytes, and here {room}");
    }
}
