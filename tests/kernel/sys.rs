//! The system calls that std has no name for: the only place of these tests that is unsafe.

#![allow(unsafe_code, reason = "std has no name for these calls")]
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_wrap,
    reason = "the type of a request differs between C libraries"
)]

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

/// Whether this process may mount and the like.
pub fn is_root() -> bool {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Turns what most calls answer into a result.
fn checked(answer: libc::c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Cuts the power of the file system that `path` is on: what was not synced is gone, what is
/// tried from here on fails.
pub fn cut_power(path: &Path) -> io::Result<()> {
    /// `FS_IOC_SHUTDOWN`.
    const SHUTDOWN: u32 = 0x8004_587d;
    /// The log is not flushed either.
    static NO_LOG_FLUSH: u32 = 2;
    let dir = fs::File::open(path)?;
    // SAFETY: the descriptor is open, and the call reads one number of 32 bits from the address.
    checked(unsafe { libc::ioctl(dir.as_raw_fd(), SHUTDOWN as _, &raw const NO_LOG_FLUSH) })
}

/// Gives the room of a range of a file back: it reads as zeros, and takes room again when written.
pub fn punch(file: &fs::File, offset: u64, bytes: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let (offset, bytes) = (i64::try_from(offset).unwrap(), i64::try_from(bytes).unwrap());
    // SAFETY: the descriptor is open, and the call takes numbers alone.
    checked(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, bytes) })
}

/// Gives a file room for so many bytes, and changes none.
pub fn reserve(file: &fs::File, bytes: u64) -> io::Result<()> {
    let bytes = i64::try_from(bytes).unwrap();
    // SAFETY: the descriptor is open, and the call takes numbers alone.
    checked(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) })
}

/// Where the parts of a file are on its device: offset in the file, on the device, length.
pub fn extents(file: &fs::File) -> io::Result<Vec<(u64, u64, u64)>> {
    /// `FS_IOC_FIEMAP`: a header of 32 bytes, then records of 56.
    const FIEMAP: u32 = 0xc020_660b;
    const MOST: usize = 64;
    let mut words = [0_u64; 4 + MOST * 7];
    words[1] = u64::MAX;
    // Flags: sync first. The other halves are what is answered, and the room there is.
    words[2] = 1;
    words[3] = MOST as u64;
    // SAFETY: the descriptor is open, and the header says how many records there is room for.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), FIEMAP as _, words.as_mut_ptr()) })?;
    let count = usize::try_from(words[2] >> 32).unwrap();
    Ok(words[4..].chunks_exact(7).take(count).map(|w| (w[0], w[1], w[2])).collect())
}

/// Sets a limit of this process.
pub fn limit(resource: libc::c_uint, to: u64) -> io::Result<()> {
    let limits = libc::rlimit { rlim_cur: to, rlim_max: to };
    // SAFETY: the structure lives as long as the call, which only reads it.
    checked(unsafe { libc::setrlimit(resource, &raw const limits) })
}

/// Lets a file that grows beyond the limit be an error, not the end of the process.
pub fn ignore_file_size_signal() {
    // SAFETY: nothing else of this process handles the signal, and no handler is installed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Makes this process end when its parent does, so that no failing test leaves one behind.
pub fn end_with_parent() {
    // SAFETY: the call takes numbers alone.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Takes nothing away from what files are made with.
pub fn open_umask() {
    // SAFETY: the call takes a number and cannot fail.
    unsafe { libc::umask(0) };
}

/// Gives up what root may: permissions count from here on. Does nothing for who is not root.
pub fn be_nobody() -> io::Result<()> {
    const NOBODY: libc::uid_t = 65_534;
    if !is_root() {
        return Ok(());
    }
    // SAFETY: the calls take numbers and, for no groups at all, no list.
    let gone = unsafe {
        [libc::setgroups(0, std::ptr::null()), libc::setgid(NOBODY), libc::setuid(NOBODY)]
    };
    gone.into_iter().try_for_each(checked)
}

/// What `child` answers in a fork of this process. The child must not touch what other threads
/// might hold.
pub fn in_fork(child: impl FnOnce() -> u8) -> io::Result<u8> {
    // SAFETY: the process has one thread that does anything, and the child leaves by `_exit`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            // SAFETY: the call does not return.
            unsafe { libc::_exit(code.map_or(255, libc::c_int::from)) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: the address is that of a number which lives as long as the call.
            if unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {
                return Err(io::Error::last_os_error());
            }
            if !libc::WIFEXITED(status) {
                return Err(io::Error::other(format!("the child ended with status {status:#x}")));
            }
            Ok(u8::try_from(libc::WEXITSTATUS(status)).unwrap())
        }
    }
}

/// Drops what this thread's stores have put aside: files that were read stay mapped until every thread
/// has gone on, and what one thread finds to drop it may put aside once more.
pub fn let_go() {
    for _ in 0..8 {
        crossbeam_epoch::pin().flush();
    }
}
