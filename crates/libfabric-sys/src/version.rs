use std::fmt;

/// A version of libfabric or of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The number in front of the dot.
    pub major: u16,
    /// The number behind it.
    pub minor: u16,
}

impl Version {
    /// The first that is supported: Debian 12's.
    pub const OLDEST: Self = Self::new(1, 17);

    /// The first major version that nobody here has seen.
    pub const UNKNOWN: Self = Self::new(3, 0);

    /// The newest interface that is asked for. A library that speaks a newer one keeps to it.
    pub const INTERFACE: Self = Self::new(1, 20);

    /// Of these two numbers.
    #[must_use]
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// As the library writes it.
    #[must_use]
    pub const fn packed(self) -> u32 {
        (self.major as u32) << 16 | self.minor as u32
    }

    /// Reads what the library says.
    #[must_use]
    pub const fn unpacked(packed: u32) -> Self {
        let [a, b, c, d] = packed.to_be_bytes();
        Self::new(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
    }

    /// The interface to ask a library of this version for: one that is newer than itself it
    /// refuses.
    #[must_use]
    pub fn interface(self) -> Self {
        self.min(Self::INTERFACE)
    }

    /// Whether it is one of those that this crate knows.
    #[must_use]
    pub fn is_supported(self) -> bool {
        (Self::OLDEST..Self::UNKNOWN).contains(&self)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn versions_are_limited_at_both_ends() {
        for (version, supported, interface) in [
            ((1, 16), false, (1, 16)),
            ((1, 17), true, (1, 17)),
            ((1, 22), true, (1, 20)),
            ((2, 0), true, (1, 20)),
            ((2, 99), true, (1, 20)),
            ((3, 0), false, (1, 20)),
        ] {
            let version = Version::new(version.0, version.1);
            assert_eq!(version.is_supported(), supported, "{version}");
            assert_eq!(version.interface(), Version::new(interface.0, interface.1), "{version}");
            assert_eq!(Version::unpacked(version.packed()), version);
        }
        assert_eq!(Version::new(2, 5).packed(), 0x2_0005);
    }
}
