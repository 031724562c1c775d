//! cuda-mem
