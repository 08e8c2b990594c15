//! The bpf(2) commands that the engine needs, and mapped memory. Nothing is cached here, and
//! nothing outlives its owner, because every fd is an `OwnedFd`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// BPF_MAP_CREATE
pub const MAP_CREATE: libc::c_int = 0;
/// BPF_MAP_UPDATE_ELEM
pub const MAP_UPDATE_ELEM: libc::c_int = 2;
/// BPF_PROG_LOAD
pub const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
/// BPF_BTF_LOAD
pub const BTF_LOAD: libc::c_int = 18;
const LINK_CREATE: libc::c_int = 28;
const ITER_CREATE: libc::c_int = 33;

const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_SYSCALL: u32 = 31;
const TRACE_ITER: u32 = 28;
const F_SLEEPABLE: u32 = 1 << 4;

/// Calls bpf(2) with one of the structs of `union bpf_attr`.
fn bpf<T>(cmd: libc::c_int, attr: &mut T) -> io::Result<i64> {
    // SAFETY: attr is a zero-initialised, correctly laid out prefix of union bpf_attr of the size
    // given, and all its pointers lead to memory that the caller holds during the call.
    let r = unsafe { libc::syscall(libc::SYS_bpf, cmd, attr as *mut T, size_of::<T>()) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r) }
}

/// Calls bpf(2) with a `union bpf_attr` that another program filled in. Returns its result, or a
/// negative errno.
pub fn bpf_bytes(cmd: libc::c_int, attr: &mut [u8]) -> i64 {
    // SAFETY: the kernel reads and writes the attr within its length. The commands of a loader only
    // read through its pointers, and a bad pointer is EFAULT.
    let r = unsafe { libc::syscall(libc::SYS_bpf, cmd, attr.as_mut_ptr(), attr.len()) };
    if r < 0 {
        -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    } else {
        r
    }
}

/// Does the command return a new fd?
pub fn makes_fd(cmd: libc::c_int) -> bool {
    matches!(cmd, MAP_CREATE | PROG_LOAD | BTF_LOAD)
}

fn owned(fd: i64) -> OwnedFd {
    // SAFETY: a successful bpf(2) create command returns a new fd without another owner.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

fn name(s: &str) -> [u8; 16] {
    let mut n = [0; 16];
    n[..s.len()].copy_from_slice(s.as_bytes());
    n
}

/// An array map of one element.
pub fn array_of_one(label: &str, value_size: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
        inner_map_fd: u32,
        numa_node: u32,
        map_name: [u8; 16],
    }
    bpf(
        MAP_CREATE,
        &mut Attr {
            map_type: MAP_TYPE_ARRAY,
            key_size: 4,
            value_size,
            max_entries: 1,
            map_flags: 0,
            inner_map_fd: 0,
            numa_node: 0,
            map_name: name(label),
        },
    )
    .map(owned)
}

/// Set element 0 of an array map. `value` must have the map's value size.
pub fn update_first(map: &OwnedFd, value: &[u8]) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        map_fd: u32,
        pad: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let key = 0u32;
    bpf(
        MAP_UPDATE_ELEM,
        &mut Attr {
            map_fd: map.as_raw_fd() as u32,
            pad: 0,
            key: (&raw const key).addr() as u64,
            value: value.as_ptr().addr() as u64,
            flags: 0,
        },
    )
    .map(drop)
}

/// Load the loader program of a light skeleton. `map` holds its data.
pub fn load_loader(insns: &[u8], map: &OwnedFd) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; 16],
        prog_ifindex: u32,
        expected_attach_type: u32,
        prog_btf_fd: u32,
        func_info_rec_size: u32,
        func_info: u64,
        func_info_cnt: u32,
        line_info_rec_size: u32,
        line_info: u64,
        line_info_cnt: u32,
        attach_btf_id: u32,
        attach_prog_fd: u32,
        core_relo_cnt: u32,
        fd_array: u64,
    }
    let fd_array = [map.as_raw_fd()];
    bpf(
        PROG_LOAD,
        &mut Attr {
            prog_type: PROG_TYPE_SYSCALL,
            insn_cnt: (insns.len() / 8) as u32,
            insns: insns.as_ptr().addr() as u64,
            license: c"Dual BSD/GPL".as_ptr().addr() as u64,
            log_level: 0,
            log_size: 0,
            log_buf: 0,
            kern_version: 0,
            prog_flags: F_SLEEPABLE,
            prog_name: name("__loader.prog"),
            prog_ifindex: 0,
            expected_attach_type: 0,
            prog_btf_fd: 0,
            func_info_rec_size: 0,
            func_info: 0,
            func_info_cnt: 0,
            line_info_rec_size: 0,
            line_info: 0,
            line_info_cnt: 0,
            attach_btf_id: 0,
            attach_prog_fd: 0,
            core_relo_cnt: 0,
            fd_array: fd_array.as_ptr().addr() as u64,
        },
    )
    .map(owned)
}

/// Run a SYSCALL program on a context, which it may change. Returns the program's return value.
pub fn test_run(prog: &OwnedFd, ctx: &mut [u64], ctx_bytes: usize) -> io::Result<i32> {
    #[repr(C)]
    struct Attr {
        prog_fd: u32,
        retval: u32,
        data_size_in: u32,
        data_size_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
        ctx_size_in: u32,
        ctx_size_out: u32,
        ctx_in: u64,
        ctx_out: u64,
        flags: u32,
        cpu: u32,
        batch_size: u32,
        pad: u32,
    }
    let mut attr = Attr {
        prog_fd: prog.as_raw_fd() as u32,
        retval: 0,
        data_size_in: 0,
        data_size_out: 0,
        data_in: 0,
        data_out: 0,
        repeat: 0,
        duration: 0,
        ctx_size_in: ctx_bytes as u32,
        ctx_size_out: 0,
        ctx_in: ctx.as_mut_ptr().addr() as u64,
        ctx_out: 0,
        flags: 0,
        cpu: 0,
        batch_size: 0,
        pad: 0,
    };
    debug_assert!(ctx_bytes <= ctx.len() * 8);
    bpf(PROG_TEST_RUN, &mut attr)?;
    Ok(attr.retval as i32)
}

/// Attach an iterator program.
pub fn link(prog: &OwnedFd) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        prog_fd: u32,
        target_fd: u32,
        attach_type: u32,
        flags: u32,
    }
    let prog_fd = prog.as_raw_fd() as u32;
    bpf(LINK_CREATE, &mut Attr { prog_fd, target_fd: 0, attach_type: TRACE_ITER, flags: 0 })
        .map(owned)
}

/// Open a file that runs an attached iterator program from the first task on.
pub fn iterator(link: &OwnedFd) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        link_fd: u32,
        flags: u32,
    }
    bpf(ITER_CREATE, &mut Attr { link_fd: link.as_raw_fd() as u32, flags: 0 }).map(owned)
}

/// Inode of the pid namespace of this process.
///
/// # Errors
/// The errors of pidfd_open(2) and its `PIDFD_GET_PID_NAMESPACE`, which came with Linux 6.11.
pub fn own_pid_namespace() -> io::Result<u64> {
    /// `_IO(0xff, 5)` of linux/pidfd.h.
    const PIDFD_GET_PID_NAMESPACE: libc::c_ulong = 0xff05;
    // SAFETY: plain system calls. A new fd that one of the calls returns has no other owner.
    unsafe {
        let pidfd = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
        if pidfd < 0 {
            return Err(io::Error::last_os_error());
        }
        let pidfd = owned(pidfd);
        let ns = libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_PID_NAMESPACE as _, 0);
        if ns < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(rustix::fs::fstat(owned(ns.into()))?.st_ino)
    }
}

/// A mapping of a BPF map's memory, shared with the programs.
#[derive(Debug)]
pub struct Mapping {
    at: *mut u8,
    len: usize,
}

impl Mapping {
    /// Map the first `len` bytes of an mmapable array map.
    pub fn new(map: &OwnedFd, len: usize) -> io::Result<Mapping> {
        // SAFETY: a fresh shared mapping; the kernel chooses the address.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { at: at.cast(), len })
    }
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Writable bytes from `from` on, with the same condition as [`slice`](Self::slice).
    pub fn slice_mut(&mut self, from: usize, len: usize) -> &mut [u8] {
        assert!(from.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: inside the mapping, borrowed mutably; the program does not run during this time.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(from), len) }
    }
    /// Bytes from `from` on. No program that writes to them may run while the slice lives.
    pub fn slice(&self, from: usize, len: usize) -> &[u8] {
        assert!(from.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: inside the mapping, which lives as long as self. The iterator program writes only
        // during read(2) on its file, which the engine does not call during that time.
        unsafe { std::slice::from_raw_parts(self.at.add(from), len) }
    }
}

// SAFETY: plain memory that is not tied to a thread; all access goes through &self or &mut self.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping that new() made, unmapped once.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}
