//! Having the system begin to write a file to the device.
//!
//! What is written to a file stays in memory until somebody syncs it, or until the system finds that
//! there is too much of it. A large file that is synced at its end is then written all at once, and
//! every sync of another file waits behind it. Where the system has no such call, that remains so.

#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "std has no name for the call"))]

use std::fs;
use std::ops::Range;

/// See [`super::File::write_back`].
#[cfg(target_os = "linux")]
pub(super) fn write_back(file: &fs::File, range: Range<u64>) {
    use std::os::fd::AsRawFd as _;

    let bytes = range.end.saturating_sub(range.start);
    let (Ok(start), Ok(bytes)) = (i64::try_from(range.start), i64::try_from(bytes)) else { return };
    // To the call no bytes would be all there are.
    if bytes > 0 {
        // SAFETY: the call takes numbers and no pointer, and the descriptor is open as long as `file`
        // is borrowed. It changes nothing that a reader of the file could see.
        //
        // It waits for no write and so takes no error away from the sync, which tells it.
        let _ = unsafe {
            libc::sync_file_range(file.as_raw_fd(), start, bytes, libc::SYNC_FILE_RANGE_WRITE)
        };
    }
}

/// See [`super::File::write_back`].
#[cfg(not(target_os = "linux"))]
pub(super) fn write_back(_file: &fs::File, _range: Range<u64>) {}
