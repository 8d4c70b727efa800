//! Having the system set space aside for a file, without writing it.

#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "std has no name for the call"))]

use std::fs;
use std::io;

/// How often a call that a signal ended is made again. Some file systems undo what they have done then, and would
/// never come to an end beside a timer; the file is written with zeros instead.
#[cfg(target_os = "linux")]
const INTERRUPTED_MAX: usize = 16;

/// See [`super::File::allocate`].
#[cfg(target_os = "linux")]
pub(super) fn allocate(file: &fs::File, bytes: u64) -> io::Result<bool> {
    use std::os::fd::AsRawFd as _;

    let Ok(bytes) = i64::try_from(bytes) else { return Err(io::ErrorKind::FileTooLarge.into()) };
    for _ in 0..INTERRUPTED_MAX {
        // SAFETY: the call takes numbers and no pointer, and the descriptor is open as long as `file`
        // is borrowed.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) } == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => return Ok(false),
            _ => return Err(error),
        }
    }
    Ok(false)
}

/// See [`super::File::allocate`].
#[cfg(not(target_os = "linux"))]
pub(super) fn allocate(_file: &fs::File, _bytes: u64) -> io::Result<bool> {
    Ok(false)
}
