//! The library is found, checked and kept.

use std::ffi::{CStr, OsStr};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use libc::c_int;
use libloading::Library;

use crate::abi::{fi_dupinfo, fi_fabric, fi_freeinfo, fi_getinfo, fi_strerror, fi_version};
use crate::places::places;
use crate::{LoadError, Version, keeping_handlers};

/// A loaded libfabric: the functions that it exports, beside which all else is in tables.
pub struct Libfabric {
    /// `fi_getinfo`.
    pub getinfo: fi_getinfo,
    /// `fi_freeinfo`.
    pub freeinfo: fi_freeinfo,
    /// `fi_dupinfo`.
    pub dupinfo: fi_dupinfo,
    /// `fi_fabric`.
    pub fabric: fi_fabric,
    strerror: fi_strerror,
    version: Version,
    /// By what it was loaded, which may be a bare name.
    place: PathBuf,
    file: PathBuf,
}

/// The one of this process, once there is one.
static LOADED: Mutex<Option<&'static Libfabric>> = Mutex::new(None);

/// Loads libfabric, or gives the one that this process has loaded already; it stays loaded.
///
/// `named` is the file to load. Without it these are tried: the copy that the process has already or
/// the loader finds, Amazon's, and Cray's.
///
/// # Errors
/// None is here, or it is of an unknown version, or another file is in use already.
pub fn load(named: Option<&Path>) -> Result<&'static Libfabric, LoadError> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = *loaded {
        return library.is(named).map(|()| library);
    }
    let library: &'static Libfabric = Box::leak(Box::new(first(places(named))?));
    *loaded = Some(library);
    Ok(library)
}

/// The first that can be used; if none can, why the last one cannot that is there at all.
fn first(places: Vec<PathBuf>) -> Result<Libfabric, LoadError> {
    let (mut tried, mut unfit) = (Vec::new(), None);
    for place in places {
        // SAFETY: what runs when libfabric is loaded asks nothing of its caller; which file it
        // is, the caller or the machine's owner answers for. The handlers that it replaces are
        // put back.
        match keeping_handlers(|| unsafe { Library::new(&place) }) {
            Ok(library) => match Libfabric::new(library, &place) {
                Ok(library) => return Ok(library),
                Err(why) => unfit = Some(why),
            },
            Err(why) => tried.push(said(&place, &why)),
        }
    }
    Err(unfit.unwrap_or(LoadError::NotHere { tried }))
}

/// The loader's own words behind the error, which name the file as a rule.
fn said(place: &Path, why: &libloading::Error) -> String {
    let source = std::error::Error::source(why);
    let said = source.map_or_else(|| why.to_string(), ToString::to_string);
    let place = place.display().to_string();
    if said.contains(&place) { said } else { format!("{place}: {said}") }
}

impl Libfabric {
    fn new(library: Library, place: &Path) -> Result<Self, LoadError> {
        // It is never closed: providers have threads and handlers of their own.
        let library = ManuallyDrop::new(library);
        let lacks = |name| LoadError::NoFunction { file: place.to_owned(), name };
        macro_rules! function {
            ($name:ident) => {
                // SAFETY: a function of this name has this type in every libfabric. The library
                // is never closed, so it may be called for good.
                *unsafe { library.get::<$name>(stringify!($name)) }
                    .map_err(|_| lacks(stringify!($name)))?
            };
        }
        let version = function!(fi_version);
        // SAFETY: it takes nothing and says a number.
        let version = Version::unpacked(unsafe { version() });
        let getinfo = function!(fi_getinfo);
        let file = file_of(getinfo).unwrap_or_else(|| place.to_owned());
        if !version.is_supported() {
            return Err(LoadError::Version { file, found: version });
        }
        Ok(Self {
            getinfo,
            freeinfo: function!(fi_freeinfo),
            dupinfo: function!(fi_dupinfo),
            fabric: function!(fi_fabric),
            strerror: function!(fi_strerror),
            version,
            place: place.to_owned(),
            file,
        })
    }

    fn is(&self, named: Option<&Path>) -> Result<(), LoadError> {
        let Some(asked) = named else { return Ok(()) };
        let same = |a: &Path, b: &Path| {
            a == b
                || std::fs::canonicalize(a).is_ok_and(|a| std::fs::canonicalize(b).ok() == Some(a))
        };
        if asked == self.place || same(asked, &self.file) {
            return Ok(());
        }
        Err(LoadError::Another { loaded: self.file.clone(), asked: asked.to_owned() })
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The file that it was loaded from.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Its words for an error number, which may be negative as the functions return it.
    #[must_use]
    pub fn words(&self, error: c_int) -> String {
        // SAFETY: it knows every number, and what it returns is static text or its thread's own
        // until the next call.
        let words = unsafe { CStr::from_ptr((self.strerror)(error.saturating_abs())) };
        words.to_string_lossy().into_owned()
    }
}

/// The file in which the loader has found the function.
fn file_of(function: fi_getinfo) -> Option<PathBuf> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the loader looks for the address in its own tables and fills in the structure where
    // it finds it; the name lives as long as the library, which is for good.
    let name = unsafe {
        if libc::dladdr(function as *const _, found.as_mut_ptr()) == 0 {
            return None;
        }
        let name = found.assume_init().dli_fname;
        if name.is_null() {
            return None;
        }
        CStr::from_ptr(name)
    };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_with_another_library_is_not_the_last_one_tried() {
        let places = ["libc.so.6", "libm.so.6", "/nowhere/libfabric.so.1"].map(PathBuf::from);
        let file = places[1].clone();
        let why = first(places.to_vec()).err();
        assert_eq!(why, Some(LoadError::NoFunction { file, name: "fi_version" }));
        let why = first(places[2..].to_vec()).err();
        assert!(matches!(why, Some(LoadError::NotHere { tried }) if tried.len() == 1));
    }
}
