//! Finds the functions of the real library, and its version.
//!
//! The version comes from the loaded file. The functions do not reveal it: they have the same names
//! and symbol versions in all versions of the library, although most items have different numbers
//! since 4.0.5.

use std::ffi::{CStr, CString, OsStr, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::abi::{Abi, PidsFetch, PidsInfo, PidsStack};

/// The functions of the real library that this one replaces.
#[derive(Debug)]
pub struct Real {
    pub new: unsafe extern "C" fn(*mut *mut PidsInfo, *const c_int, c_int) -> c_int,
    pub r#ref: unsafe extern "C" fn(*mut PidsInfo) -> c_int,
    pub unref: unsafe extern "C" fn(*mut *mut PidsInfo) -> c_int,
    pub fatal: unsafe extern "C" fn(*mut PidsInfo, c_int) -> *mut PidsStack,
    pub get: unsafe extern "C" fn(*mut PidsInfo, c_int) -> *mut PidsStack,
    pub reap: unsafe extern "C" fn(*mut PidsInfo, c_int) -> *mut PidsFetch,
    pub reset: unsafe extern "C" fn(*mut PidsInfo, *const c_int, c_int) -> c_int,
    pub select: unsafe extern "C" fn(*mut PidsInfo, *const c_uint, c_int, c_int) -> *mut PidsFetch,
    pub sort: unsafe extern "C" fn(
        *mut PidsInfo,
        *mut *mut PidsStack,
        c_int,
        c_int,
        c_int,
    ) -> *mut *mut PidsStack,
    /// The properties of the version. `None`: everything is passed through.
    pub version: Option<Version>,
    /// The file.
    pub path: PathBuf,
}

/// A known version. Later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 4.0.2 and 4.0.3.
    V402,
    /// 4.0.4.
    V404,
    /// 4.0.5, the first libproc2.so.1.
    V405,
    /// 4.0.6.
    V406,
    /// 4.0.7.
    V407,
}

impl Version {
    /// Decides by the name of the file.
    fn of(file: &str) -> Option<Version> {
        match file {
            "libproc2.so.0.0.1" => Some(Version::V402),
            "libproc2.so.0.0.2" => Some(Version::V404),
            "libproc2.so.1.0.0" => Some(Version::V405),
            "libproc2.so.1.0.1" => Some(Version::V406),
            "libproc2.so.1.0.2" => Some(Version::V407),
            _ => None,
        }
    }

    /// Its binary interface.
    pub fn abi(self) -> Abi {
        if self >= Version::V405 { Abi::So1 } else { Abi::So0 }
    }

    /// If threads are listed, is the row of a process's first thread made from the files of the
    /// process?
    pub fn shows_sums_in_first_threads(self) -> bool {
        self < Version::V404
    }

    /// Does this version read `stat` of each task for all items? Then it always knows name and
    /// state.
    pub fn always_reads_stat(self) -> bool {
        self >= Version::V406
    }

    /// Does it count the time since boot in nanoseconds? If not, the time is in hundredths of a
    /// second, and a task that is younger than the fetch looks very old.
    pub fn has_fine_uptime(self) -> bool {
        self >= Version::V405
    }

    /// Are odd bytes replaced in lists of strings, too?
    pub fn escapes_lists(self) -> bool {
        self >= Version::V407
    }

    /// Is an empty command line shown as `-`, and an empty user name as the number? Before, these
    /// are `?` and empty.
    pub fn marks_empty_text(self) -> bool {
        self >= Version::V406
    }

    /// Does `procps_pids_select` leave a file descriptor open for each process?
    pub fn leaks_in_select(self) -> bool {
        self == Version::V406
    }
}

/// The real library, or `None` if this process has none. A plugin may load it later, so it is
/// looked for again then.
pub fn real() -> Option<&'static Real> {
    static REAL: OnceLock<Real> = OnceLock::new();
    if REAL.get().is_none() {
        let _ = REAL.set(find()?);
    }
    REAL.get()
}

/// Where functions are looked up: in a handle of dlopen(3), or after this library.
type Place = *mut c_void;

/// The function of this name.
fn symbol(place: Place, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: both are strings, and the callers have a handle that is open, or RTLD_NEXT.
    let at = unsafe { libc::dlvsym(place, name.as_ptr(), c"LIBPROC_2".as_ptr()) };
    (!at.is_null()).then_some(at)
}

/// A library that only a plugin has loaded (`RTLD_LOCAL`) is not among the libraries after this
/// one, so the loaded files are searched.
fn find() -> Option<Real> {
    functions(libc::RTLD_NEXT).or_else(|| loaded().iter().find_map(|name| of_file(name)))
}

/// The names of all files that are loaded.
fn loaded() -> Vec<CString> {
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _size: libc::size_t,
        names: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker gives a description, whose name is a string, and `names` is that of
        // the call below.
        unsafe {
            if !(*info).dlpi_name.is_null() {
                (*names.cast::<Vec<CString>>()).push(CStr::from_ptr((*info).dlpi_name).to_owned());
            }
        }
        0
    }
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: the function has the type that is wanted, and gets the list that it expects.
    unsafe { libc::dl_iterate_phdr(Some(each), std::ptr::from_mut(&mut names).cast()) };
    names
}

/// The real library, if this file is it, and is loaded.
fn of_file(name: &CStr) -> Option<Real> {
    let path = std::fs::canonicalize(OsStr::from_bytes(name.to_bytes())).ok()?;
    if !path.file_name()?.as_bytes().starts_with(b"libproc2.so.") {
        return None;
    }
    // SAFETY: the name is a string. The file is loaded already, so no code of it runs.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    // A stub of `taskdiag dropin install` has the same name, but leads to the functions of this
    // library.
    let real = functions(handle).filter(|real| real.path == path);
    if real.is_none() {
        // SAFETY: it was opened above. Otherwise it stays open, so that its functions keep their
        // addresses.
        unsafe { libc::dlclose(handle) };
    }
    real
}

/// The functions that are found there.
fn functions(place: Place) -> Option<Real> {
    /// A function by its name, as the type of the member that it is for.
    macro_rules! function {
        ($name:literal) => {{
            let at = symbol(place, $name)?;
            // SAFETY: the header of the library gives the function of this name this type, in every
            // version that has the symbol version LIBPROC_2.
            #[expect(clippy::missing_transmute_annotations, reason = "the member has the type")]
            unsafe {
                std::mem::transmute(at)
            }
        }};
    }
    let path = file_of(symbol(place, c"procps_pids_new")?)?;
    let version = path.file_name().and_then(OsStr::to_str).and_then(Version::of);
    Some(Real {
        new: function!(c"procps_pids_new"),
        r#ref: function!(c"procps_pids_ref"),
        unref: function!(c"procps_pids_unref"),
        fatal: function!(c"fatal_proc_unmounted"),
        get: function!(c"procps_pids_get"),
        reap: function!(c"procps_pids_reap"),
        reset: function!(c"procps_pids_reset"),
        select: function!(c"procps_pids_select"),
        sort: function!(c"procps_pids_sort"),
        version,
        path,
    })
}

/// The file that a function was loaded from, with symbolic links followed.
fn file_of(function: *mut c_void) -> Option<PathBuf> {
    // SAFETY: all zeroes are a valid value, which the call fills.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(function, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    std::fs::canonicalize(OsStr::from_bytes(name.to_bytes())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_name_of_the_library_gives_its_version() {
        assert_eq!(Version::of("libproc2.so.0.0.1"), Some(Version::V402));
        assert_eq!(Version::of("libproc2.so.0.0.2"), Some(Version::V404));
        assert_eq!(Version::of("libproc2.so.1.0.0"), Some(Version::V405));
        assert_eq!(Version::of("libproc2.so.1.0.1"), Some(Version::V406));
        assert_eq!(Version::of("libproc2.so.1.0.2"), Some(Version::V407));
        for unknown in [
            "libproc2.so.0.0.0",
            "libproc2.so.0.0.3",
            "libproc2.so.1.0.3",
            "libproc2.so.2.0.0",
            "libproc2.so.1",
        ] {
            assert_eq!(Version::of(unknown), None);
        }
    }

    #[test]
    fn each_version_of_the_library_has_its_interface() {
        let abis = [Version::V402, Version::V404, Version::V405, Version::V406, Version::V407]
            .map(Version::abi);
        assert_eq!(abis, [Abi::So0, Abi::So0, Abi::So1, Abi::So1, Abi::So1]);
    }

    #[test]
    fn a_library_loaded_by_a_plugin_is_found() {
        assert!(real().is_none(), "this test does not link to it");
        let open = |name: &CStr| {
            // SAFETY: the name is a string.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
            (!handle.is_null()).then_some(())
        };
        let Some(()) = open(c"libproc2.so.1").or_else(|| open(c"libproc2.so.0")) else {
            eprintln!("SKIPPED: neither libproc2.so.1 nor libproc2.so.0 is installed");
            return;
        };
        let real = real().expect("it is loaded");
        let name = real.path.file_name().and_then(OsStr::to_str).expect("a name");
        assert!(name.starts_with("libproc2.so."), "{name}");
        assert_eq!(real.version, Version::of(name));
        // The functions are its own, and not those of this library with the same names.
        assert_ne!(real.get as usize, crate::exports::procps_pids_get as *const () as usize);
        assert_eq!(file_of(real.get as *mut c_void).as_ref(), Some(&real.path));
    }
}
