//! Structures and tables of functions, by their names in the headers.
//!
//! Whoever makes one of the library's objects answers for what it is asked to do: each function is
//! described by the manual page of its inline twin (`fi_ops_cq::read` is `fi_cq_read`).

#![allow(non_camel_case_types, reason = "the names are those of the headers")]
#![allow(missing_docs, reason = "the fields are libfabric's; its manual pages describe them")]

use libc::{c_char, c_int, c_void, iovec, size_t, ssize_t};

pub type fi_addr_t = u64;

/// A function that is not called here.
pub type unused = *const c_void;

pub type fi_getinfo = unsafe extern "C" fn(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int;
pub type fi_freeinfo = unsafe extern "C" fn(*mut fi_info);
pub type fi_dupinfo = unsafe extern "C" fn(*const fi_info) -> *mut fi_info;
pub type fi_fabric =
    unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int;
pub type fi_strerror = unsafe extern "C" fn(c_int) -> *const c_char;
pub type fi_version = unsafe extern "C" fn() -> u32;

#[repr(C)]
pub struct fid {
    pub fclass: size_t,
    pub context: *mut c_void,
    pub ops: *const fi_ops,
}

#[repr(C)]
pub struct fi_ops {
    pub size: size_t,
    pub close: unsafe extern "C" fn(*mut fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut fid, *mut fid, flags: u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut fid, command: c_int, *mut c_void) -> c_int,
}

#[repr(C)]
pub struct fi_info {
    pub next: *mut fi_info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: size_t,
    pub dest_addrlen: size_t,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: *mut fid,
    pub tx_attr: *mut fi_tx_attr,
    pub rx_attr: *mut fi_rx_attr,
    pub ep_attr: *mut fi_ep_attr,
    pub domain_attr: *mut fi_domain_attr,
    pub fabric_attr: *mut fi_fabric_attr,
    pub nic: *mut c_void,
}

#[repr(C)]
pub struct fi_tx_attr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: size_t,
    pub size: size_t,
    pub iov_limit: size_t,
    pub rma_iov_limit: size_t,
    pub tclass: u32,
}

#[repr(C)]
pub struct fi_rx_attr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: size_t,
    pub size: size_t,
    pub iov_limit: size_t,
}

/// Its front.
#[repr(C)]
pub struct fi_ep_attr {
    pub type_: c_int,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: size_t,
}

/// Its front.
#[repr(C)]
pub struct fi_domain_attr {
    pub domain: *mut fid_domain,
    pub name: *mut c_char,
    pub threading: c_int,
    pub control_progress: c_int,
    pub data_progress: c_int,
    pub resource_mgmt: c_int,
    pub av_type: c_int,
    pub mr_mode: c_int,
    pub mr_key_size: size_t,
    pub cq_data_size: size_t,
}

#[repr(C)]
pub struct fi_fabric_attr {
    pub fabric: *mut fid_fabric,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

#[repr(C)]
pub struct fid_fabric {
    pub fid: fid,
    pub ops: *const fi_ops_fabric,
    pub api_version: u32,
}

#[repr(C)]
pub struct fi_ops_fabric {
    pub size: size_t,
    pub domain: unsafe extern "C" fn(
        *mut fid_fabric,
        *mut fi_info,
        *mut *mut fid_domain,
        *mut c_void,
    ) -> c_int,
    pub passive_ep: unused,
    pub eq_open: unused,
    pub wait_open: unused,
    pub trywait: Option<unsafe extern "C" fn(*mut fid_fabric, *mut *mut fid, c_int) -> c_int>,
}

#[repr(C)]
pub struct fid_domain {
    pub fid: fid,
    pub ops: *const fi_ops_domain,
    pub mr: *const fi_ops_mr,
}

#[repr(C)]
pub struct fi_ops_domain {
    pub size: size_t,
    pub av_open: unsafe extern "C" fn(
        *mut fid_domain,
        *mut fi_av_attr,
        *mut *mut fid_av,
        *mut c_void,
    ) -> c_int,
    pub cq_open: unsafe extern "C" fn(
        *mut fid_domain,
        *mut fi_cq_attr,
        *mut *mut fid_cq,
        *mut c_void,
    ) -> c_int,
    pub endpoint:
        unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int,
}

#[repr(C)]
pub struct fi_ops_mr {
    pub size: size_t,
    pub reg: unused,
    pub regv: unused,
    pub regattr:
        unsafe extern "C" fn(*mut fid, *const fi_mr_attr, flags: u64, *mut *mut fid_mr) -> c_int,
}

#[repr(C)]
pub struct fid_mr {
    pub fid: fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

/// What memory is registered, with room for later fields.
#[repr(C)]
pub struct fi_mr_attr {
    /// Under the flag `FI_MR_DMABUF` a [`fi_mr_dmabuf`].
    pub mr_iov: *const iovec,
    pub iov_count: size_t,
    pub access: u64,
    pub offset: u64,
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: size_t,
    pub auth_key: *mut u8,
    pub iface: c_int,
    pub device: u64,
    pub room: [u64; 12],
}

/// Since 1.20.
#[repr(C)]
pub struct fi_mr_dmabuf {
    pub fd: c_int,
    pub offset: u64,
    pub len: size_t,
    pub base_addr: *mut c_void,
}

/// With room for later fields.
#[repr(C)]
pub struct fi_av_attr {
    pub type_: c_int,
    pub rx_ctx_bits: c_int,
    pub count: size_t,
    pub ep_per_node: size_t,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
    pub room: [u64; 8],
}

#[repr(C)]
pub struct fid_av {
    pub fid: fid,
    pub ops: *const fi_ops_av,
}

#[repr(C)]
pub struct fi_ops_av {
    pub size: size_t,
    pub insert: unsafe extern "C" fn(
        *mut fid_av,
        addr: *const c_void,
        count: size_t,
        *mut fi_addr_t,
        flags: u64,
        *mut c_void,
    ) -> c_int,
    pub insertsvc: unused,
    pub insertsym: unused,
    pub remove: unsafe extern "C" fn(*mut fid_av, *mut fi_addr_t, size_t, flags: u64) -> c_int,
}

/// With room for later fields.
#[repr(C)]
pub struct fi_cq_attr {
    pub size: size_t,
    pub flags: u64,
    pub format: c_int,
    pub wait_obj: c_int,
    pub signaling_vector: c_int,
    pub wait_cond: c_int,
    pub wait_set: *mut c_void,
    pub room: [u64; 8],
}

#[repr(C)]
pub struct fid_cq {
    pub fid: fid,
    pub ops: *const fi_ops_cq,
}

#[repr(C)]
pub struct fi_ops_cq {
    pub size: size_t,
    pub read: unsafe extern "C" fn(*mut fid_cq, *mut c_void, count: size_t) -> ssize_t,
    pub readfrom: unused,
    pub readerr: unsafe extern "C" fn(*mut fid_cq, *mut fi_cq_err_entry, flags: u64) -> ssize_t,
    pub sread: unused,
    pub sreadfrom: unused,
    pub signal: unused,
    pub strerror: unsafe extern "C" fn(
        *mut fid_cq,
        prov_errno: c_int,
        err_data: *const c_void,
        buf: *mut c_char,
        len: size_t,
    ) -> *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_cq_data_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: size_t,
    pub buf: *mut c_void,
    pub data: u64,
}

/// With room for later fields.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_cq_err_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: size_t,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: size_t,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: size_t,
    pub room: [u64; 9],
}

#[repr(C)]
pub struct fid_ep {
    pub fid: fid,
    pub ops: unused,
    pub cm: *const fi_ops_cm,
    pub msg: unused,
    pub rma: *const fi_ops_rma,
}

#[repr(C)]
pub struct fi_ops_cm {
    pub size: size_t,
    pub setname: unused,
    pub getname: unsafe extern "C" fn(*mut fid, *mut c_void, *mut size_t) -> c_int,
}

#[repr(C)]
pub struct fi_ops_rma {
    pub size: size_t,
    pub read: unsafe extern "C" fn(
        *mut fid_ep,
        buf: *mut c_void,
        len: size_t,
        desc: *mut c_void,
        src_addr: fi_addr_t,
        addr: u64,
        key: u64,
        *mut c_void,
    ) -> ssize_t,
    pub readv: unused,
    pub readmsg: unused,
    pub write: unsafe extern "C" fn(
        *mut fid_ep,
        buf: *const c_void,
        len: size_t,
        desc: *mut c_void,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        *mut c_void,
    ) -> ssize_t,
    pub writev: unused,
    pub writemsg: unused,
    pub inject: unused,
    pub writedata: unsafe extern "C" fn(
        *mut fid_ep,
        buf: *const c_void,
        len: size_t,
        desc: *mut c_void,
        data: u64,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        *mut c_void,
    ) -> ssize_t,
}

/// Room that the library uses for an operation in flight.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_context2 {
    pub internal: [*mut c_void; 8],
}
