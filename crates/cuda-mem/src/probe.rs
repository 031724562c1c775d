use cudarc::driver::{DriverError as CudaError, result, sys};

/// A device that the driver offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The driver's name for it.
    pub name: String,
    /// Its memory in bytes.
    pub bytes: usize,
}

/// Why no device can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// There is no driver on this machine.
    #[error(
        "no CUDA driver is here: libcuda.so.1 cannot be loaded; install NVIDIA's driver, or keep \
         the KV cache in host memory"
    )]
    NotHere,
    /// The driver is there and refuses.
    #[error("the CUDA driver refuses: {why}")]
    Refused {
        /// The driver's words.
        why: String,
    },
}

impl From<CudaError> for DriverError {
    fn from(why: CudaError) -> Self {
        Self::Refused { why: why.to_string() }
    }
}

/// The devices that the CUDA driver offers, by its own numbering.
///
/// # Errors
/// [`DriverError::NotHere`] on a machine without a driver, [`DriverError::Refused`] where it
/// does not work.
pub fn devices() -> Result<Vec<Device>, DriverError> {
    // SAFETY: loads NVIDIA's library if it is installed, whose start-up code has no demands on
    // its caller.
    if !unsafe { sys::is_culib_present() } {
        return Err(DriverError::NotHere);
    }
    result::init()?;
    (0..result::device::get_count()?).map(device).collect()
}

fn device(ordinal: i32) -> Result<Device, DriverError> {
    let device = result::device::get(ordinal)?;
    let name = result::device::get_name(device)?;
    // SAFETY: the handle comes from the driver, just above.
    let bytes = unsafe { result::device::total_mem(device)? };
    Ok(Device { name, bytes })
}

#[cfg(test)]
mod tests {
    use super::{DriverError, devices};

    #[test]
    fn a_machine_without_a_driver_is_told_so_and_one_with_it_lists_its_devices() {
        match devices() {
            Ok(devices) => assert!(devices.iter().all(|device| device.bytes > 0)),
            Err(DriverError::NotHere) => {
                let text = DriverError::NotHere.to_string();
                assert!(text.contains("no CUDA driver is here"), "{text}");
            }
            Err(DriverError::Refused { why }) => assert!(!why.is_empty()),
        }
    }
}
