//! What the library offers, and which of it is taken.

use std::ffi::{CStr, CString};
use std::ptr::{NonNull, null, null_mut};

use libc::{c_char, c_int};
use libfabric_sys::abi::{
    fi_domain_attr, fi_ep_attr, fi_fabric_attr, fi_info, fi_rx_attr, fi_tx_attr,
};
use libfabric_sys::constants::{
    FI_CONTEXT, FI_CONTEXT2, FI_EP_RDM, FI_HMEM, FI_MR_ALLOCATED, FI_MR_HMEM, FI_MR_LOCAL,
    FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_MSG, FI_PROGRESS_AUTO, FI_RMA, FI_SOURCE, FI_THREAD_DOMAIN,
};
use libfabric_sys::{Libfabric, Version, keeping_handlers};

use crate::libfabric::{FabricConfig, FabricFacts, OpenError, RegistrationModes};

/// From here on Amazon's cards do RDMA themselves; before, the library does it for them and
/// says nothing.
const EFA_NEEDS: Version = Version::new(1, 18);

/// A list of the library's, of which one entry is used.
pub(super) struct Info {
    library: &'static Libfabric,
    first: NonNull<fi_info>,
    chosen: NonNull<fi_info>,
}

impl Info {
    /// Asks for what the settings want.
    pub(super) fn find(
        library: &'static Libfabric,
        config: &FabricConfig,
    ) -> Result<Self, OpenError> {
        let provider = config.provider.clone();
        let found = library.version();
        if provider.starts_with("efa") && found < EFA_NEEDS {
            return Err(OpenError::TooOld { provider, found, least: EFA_NEEDS });
        }
        let not_offered = |why: String| OpenError::NotOffered {
            version: found,
            provider: provider.clone(),
            at: config.source.clone(),
            why,
        };
        let hints = hints(library, config).ok_or_else(|| not_offered("no memory".to_owned()))?;
        let first = hints.ask(config).map_err(|code| not_offered(library.words(code)))?;
        // The list is given back by this value.
        let mut info = Self { library, first, chosen: first };
        info.chosen = info.best(&provider);
        Ok(info)
    }

    /// Asks with this as the hints.
    fn ask(&self, config: &FabricConfig) -> Result<NonNull<fi_info>, c_int> {
        let node = config.source.as_deref().and_then(|source| CString::new(source).ok());
        let flags = if node.is_some() { FI_SOURCE } else { 0 };
        let node = node.as_ref().map_or(null(), |node| node.as_ptr());
        let version = self.library.version().interface().packed();
        let (mut found, hints) = (null_mut(), self.chosen.as_ptr());
        // SAFETY: the name and the hints outlive the call, which reads them and fills in a list.
        // Providers are looked for at the first call, and may set handlers as they begin.
        let code = keeping_handlers(|| unsafe {
            (self.library.getinfo)(version, node, null(), flags, hints, &raw mut found)
        });
        NonNull::new(found).filter(|_| code == 0).ok_or(if code == 0 {
            -libc::ENODATA
        } else {
            code
        })
    }

    /// The first that has exactly the name that was asked for, or else the first.
    fn best(&self, provider: &str) -> NonNull<fi_info> {
        let mut next = Some(self.first);
        while let Some(info) = next {
            // SAFETY: the list and its strings belong to this value.
            let (name, rest) =
                unsafe { (text((*(*info.as_ptr()).fabric_attr).prov_name), (*info.as_ptr()).next) };
            if name == provider {
                return info;
            }
            next = NonNull::new(rest);
        }
        self.first
    }

    /// For functions of the library, which only read it.
    pub(super) fn ptr(&self) -> *mut fi_info {
        self.chosen.as_ptr()
    }

    fn get(&self) -> &fi_info {
        // SAFETY: the list belongs to this value, and nobody changes it.
        unsafe { self.chosen.as_ref() }
    }

    pub(super) fn fabric(&self) -> &fi_fabric_attr {
        // SAFETY: every entry has one, which lives as long; nobody changes it.
        unsafe { &*self.get().fabric_attr }
    }

    fn domain(&self) -> &fi_domain_attr {
        // SAFETY: as above.
        unsafe { &*self.get().domain_attr }
    }

    fn sending(&self) -> &fi_tx_attr {
        // SAFETY: as above.
        unsafe { &*self.get().tx_attr }
    }

    fn receiving(&self) -> &fi_rx_attr {
        // SAFETY: as above.
        unsafe { &*self.get().rx_attr }
    }

    fn endpoint(&self) -> &fi_ep_attr {
        // SAFETY: as above.
        unsafe { &*self.get().ep_attr }
    }

    pub(super) fn address_format(&self) -> u32 {
        self.get().addr_format
    }

    /// Bytes of a key.
    pub(super) fn key_bytes(&self) -> usize {
        self.domain().mr_key_size
    }

    /// Reports that may wait on the other side of the queue, from operations of peers.
    pub(super) fn received(&self) -> usize {
        self.receiving().size
    }

    pub(super) fn facts(&self, config: &FabricConfig) -> FabricFacts {
        let (domain, sending) = (self.domain(), self.sending());
        let (fabric, name) = (self.fabric().name, self.fabric().prov_name);
        // SAFETY: the names belong to the list, which this value holds.
        let [provider, fabric, card] =
            [name, fabric, domain.name].map(|name| unsafe { text(name) });
        FabricFacts {
            library: self.library.file().to_owned(),
            version: self.library.version(),
            provider,
            fabric,
            domain: card,
            modes: modes(domain.mr_mode),
            max_message: self.endpoint().max_msg_size as u64,
            operations: sending.size.clamp(1, config.max_operations),
            remote_pieces: sending.rma_iov_limit,
            word_bytes: domain.cq_data_size,
            wakes: false,
            manual_progress: domain.data_progress != FI_PROGRESS_AUTO,
        }
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: the list came from the library, and nobody uses it any more.
        unsafe { (self.library.freeinfo)(self.first.as_ptr()) };
    }
}

fn modes(flags: c_int) -> RegistrationModes {
    RegistrationModes {
        flags,
        virtual_addresses: flags & FI_MR_VIRT_ADDR != 0,
        local: flags & FI_MR_LOCAL != 0,
        allocated: flags & FI_MR_ALLOCATED != 0,
        card_keys: flags & FI_MR_PROV_KEY != 0,
    }
}

/// What is asked for. The library allocates it, and so knows its own size.
fn hints(library: &'static Libfabric, config: &FabricConfig) -> Option<Info> {
    // SAFETY: without a model it makes an empty one, with all its parts.
    let first = NonNull::new(unsafe { (library.dupinfo)(null()) })?;
    let hints = Info { library, first, chosen: first };
    let devices = if config.device_memory { (FI_HMEM, FI_MR_HMEM) } else { (0, 0) };
    // SAFETY: the parts were just made, and this function alone knows them. Each string is from
    // `malloc`, as the library wants to free it.
    unsafe {
        let info = &mut *first.as_ptr();
        info.caps = FI_MSG | FI_RMA | devices.0;
        info.mode = FI_CONTEXT | FI_CONTEXT2;
        (*info.ep_attr).type_ = FI_EP_RDM;
        (*info.domain_attr).threading = FI_THREAD_DOMAIN;
        (*info.domain_attr).mr_mode =
            FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | devices.1;
        (*info.fabric_attr).prov_name = copy(Some(&config.provider));
        (*info.fabric_attr).name = copy(config.fabric.as_ref());
        (*info.domain_attr).name = copy(config.domain.as_ref());
    }
    Some(hints)
}

/// A copy that the C library frees; null for nothing.
fn copy(text: Option<&String>) -> *mut c_char {
    let text = text.and_then(|text| CString::new(text.as_str()).ok());
    // SAFETY: the text ends in a zero and outlives the call.
    text.map_or(null_mut(), |text| unsafe { libc::strdup(text.as_ptr()) })
}

/// # Safety
/// Null, or a text that ends in a zero.
unsafe fn text(name: *const c_char) -> String {
    if name.is_null() {
        return String::new();
    }
    // SAFETY: the caller answers for it.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}
