//! Memory of GPUs.

use kvferry::cuda_mem::{Device, DriverError, devices};

use super::finding::Finding;
use crate::output;

pub(super) fn look() -> Vec<Finding> {
    let mut findings = driver(devices());
    findings.push(Finding::missing(
        "blocks in GPU memory are not moved by this build yet",
        "keep the KV cache in host memory; CHANGELOG.md says what is to come",
    ));
    findings
}

/// From what the driver says.
pub(super) fn driver(devices: Result<Vec<Device>, DriverError>) -> Vec<Finding> {
    match devices {
        Ok(devices) if devices.is_empty() => vec![Finding::missing(
            "a CUDA driver is here, and no device",
            "give this process one: CUDA_VISIBLE_DEVICES, or docker run --gpus all",
        )],
        Ok(devices) => {
            let each = |device: &Device| {
                Finding::ok(format!("{}, {}", device.name, output::bytes(device.bytes as u64)))
            };
            devices.iter().map(each).collect()
        }
        Err(DriverError::NotHere) => vec![Finding::missing(
            "no CUDA driver is here: libcuda.so.1 cannot be loaded",
            "install NVIDIA's driver; hosts without a GPU need none",
        )],
        Err(why) => vec![Finding::missing(
            why.to_string(),
            "see what nvidia-smi says: the driver may need a restart of the host",
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn what_a_driver_may_say() {
        let gpu = Device { name: "NVIDIA H200".to_owned(), bytes: 141 << 30 };
        let found = driver(Ok(vec![gpu.clone(), gpu]));
        assert_eq!(found, vec![Finding::ok("NVIDIA H200, 141.0 GiB"); 2]);
        let refused = DriverError::Refused { why: "unknown error".to_owned() };
        for none in [Ok(Vec::new()), Err(DriverError::NotHere), Err(refused)] {
            let found = driver(none);
            assert_eq!((found.len(), found[0].status), (1, Status::Missing));
            assert!(found[0].mend.is_some());
        }
    }
}
