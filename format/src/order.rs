//! Keys beside bounds that are empty where there is none.
//!
//! An empty slice mostly points to no memory. To compare with one takes a processor 80 ns where its `memcmp` loads through
//! masks (AMD's of 2022 on, glibc's AVX-512: a load of nothing at an address that is not there is a fault that has to be
//! suppressed), and a key 1 ns. Bounds that are empty as a rule, and compared with by every read, are compared here.

/// Whether a range that begins with `start` has begun by `key`. With an empty one it always has.
///
/// ```
/// use annals_format::order::has_begun;
///
/// assert!(has_begun(b"", b"a") && has_begun(b"a", b"a") && !has_begun(b"b", b"a"));
/// ```
#[inline]
pub fn has_begun(start: &[u8], key: &[u8]) -> bool {
    start.is_empty() || start <= key
}

/// The later one of a key and a mark that is mostly empty.
///
/// ```
/// use annals_format::order::later;
///
/// assert_eq!(later(b"a", b""), b"a");
/// assert_eq!(later(b"a", b"b"), b"b");
/// assert_eq!(later(b"", b"b"), b"b");
/// ```
#[inline]
pub fn later<'a>(key: &'a [u8], mark: &'a [u8]) -> &'a [u8] {
    if has_begun(mark, key) { key } else { mark }
}
