//! Messages with a file descriptor and the sender's credentials. The crate rustix has these calls,
//! too, but cannot represent a sender without a pid in our namespace. The kernel reports such a
//! sender as pid 0.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Room for credentials and a few descriptors, aligned as control messages have to be.
type Control = [MaybeUninit<u64>; 16];

/// A message.
#[derive(Debug)]
pub struct Received {
    /// Bytes received. 0: the other end has closed.
    pub len: usize,
    /// The descriptor that came with it, if there was exactly one.
    pub fd: Option<OwnedFd>,
    /// The sender's pid in our pid namespace (0: it has none there), from the kernel.
    #[cfg_attr(not(feature = "serve"), expect(dead_code, reason = "the service looks at it"))]
    pub pid: Option<i32>,
    /// Was the ancillary data truncated, or was there more than one descriptor?
    #[cfg_attr(not(feature = "serve"), expect(dead_code, reason = "the service looks at it"))]
    pub is_odd: bool,
}

/// Send these bytes, and a descriptor, without waiting. Returns how many bytes were taken.
///
/// # Errors
/// The errors of sendmsg(2). If the reader is gone, the error is `EPIPE`, and there is no signal.
pub fn send(to: BorrowedFd<'_>, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let mut control: Control = [MaybeUninit::zeroed(); 16];
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeroes are a message header.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = &raw mut iov;
    msg.msg_iovlen = 1;
    if let Some(fd) = fd {
        let fd = fd.as_raw_fd();
        msg.msg_control = control.as_mut_ptr().cast();
        // SAFETY: the control buffer has room for the header and one descriptor, and is aligned for
        // them.
        unsafe {
            msg.msg_controllen = libc::CMSG_SPACE(size_of::<libc::c_int>() as u32) as _;
            let head = libc::CMSG_FIRSTHDR(&msg);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(size_of::<libc::c_int>() as u32) as _;
            libc::CMSG_DATA(head).cast::<libc::c_int>().write_unaligned(fd);
        }
    }
    loop {
        // SAFETY: the header points to memory that lives across the call and is only read.
        let n =
            unsafe { libc::sendmsg(to.as_raw_fd(), &msg, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
        match usize::try_from(n) {
            Ok(n) => return Ok(n),
            Err(_) => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e => return Err(e),
            },
        }
    }
}

/// Receive a message without waiting. `with_fd`: with the descriptor that is attached. Otherwise,
/// the buffer has only room for the sender's credentials, and the kernel drops descriptors before
/// they reach us: closing one could wait for a file system of the sender.
///
/// # Errors
/// The errors of recvmsg(2).
pub fn receive(from: BorrowedFd<'_>, bytes: &mut [u8], with_fd: bool) -> io::Result<Received> {
    let mut control: Control = [MaybeUninit::zeroed(); 16];
    let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zeroes are a message header.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = &raw mut iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.as_mut_ptr().cast();
    // SAFETY: this only computes.
    let credentials = unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) } as usize;
    msg.msg_controllen = if with_fd { size_of_val(&control) } else { credentials } as _;
    let len = loop {
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the header points to memory that lives during the call, with the lengths given in
        // it.
        let n = unsafe { libc::recvmsg(from.as_raw_fd(), &raw mut msg, flags) };
        match usize::try_from(n) {
            Ok(n) => break n,
            Err(_) => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e => return Err(e),
            },
        }
    };
    let (mut fds, mut pid) = (Vec::new(), None);
    // SAFETY: the kernel wrote whole control messages and their length, and each descriptor is ours
    // from now on.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(&msg);
        while let Some(h) = head.as_ref() {
            let data = libc::CMSG_DATA(head);
            // The type of msg_controllen is not usize on every machine.
            #[allow(clippy::unnecessary_cast)]
            let room = (h.cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            match (h.cmsg_level, h.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    for i in 0..room / size_of::<libc::c_int>() {
                        let fd = data.cast::<libc::c_int>().add(i).read_unaligned();
                        fds.push(OwnedFd::from_raw_fd(fd));
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if room >= size_of::<libc::ucred>() => {
                    pid = Some(data.cast::<libc::ucred>().read_unaligned().pid);
                }
                _ => {}
            }
            head = libc::CMSG_NXTHDR(&msg, head);
        }
    }
    let is_odd = msg.msg_flags & (libc::MSG_CTRUNC | libc::MSG_TRUNC) != 0 || fds.len() > 1;
    Ok(Received { len, fd: fds.pop().filter(|_| !is_odd), pid, is_odd })
}
