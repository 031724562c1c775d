//! Device memory for kvferry.
//!
//! What stands here today is the first question of every later one: is there a driver, and
//! what does it offer? The CUDA driver is loaded when first asked for; nothing of it is needed
//! to build or to run on a machine without a GPU.

mod probe;

pub use probe::{Device, DriverError, devices};
