//! Ranges of user keys, in the three spellings callers bring.
//!
//! Rust callers bring `a..b` and friends, or a prefix; etcd callers bring a key and a `range_end`.
//! All become one [`KeyRange`]: half-open, ordered by bytes, the end optional. No key is empty, so
//! the range from the empty key on is every key.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use annals_format::order::has_begun;
use bytes::Bytes;

/// A half-open range of keys in byte order: from `start` on, up to and without `end`.
///
/// ```
/// use annals::KeyRange;
///
/// let pods = KeyRange::prefix("/pods/");
/// assert!(pods.contains(b"/pods/a") && !pods.contains(b"/pods0"));
/// assert_eq!(pods, KeyRange::between("/pods/", "/pods0"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    start: Bytes,
    end: Option<Bytes>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        Self { start: Bytes::new(), end: None }
    }

    /// The one key `key`.
    pub fn key(key: impl AsRef<[u8]>) -> Self {
        let key = key.as_ref();
        Self { start: Bytes::copy_from_slice(key), end: Some(successor(key)) }
    }

    /// Every key that begins with `prefix`; the empty prefix is every key.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Self {
        let prefix = prefix.as_ref();
        Self { start: Bytes::copy_from_slice(prefix), end: prefix_end(prefix) }
    }

    /// Every key from `start` on.
    pub fn from_key(start: impl AsRef<[u8]>) -> Self {
        Self { start: Bytes::copy_from_slice(start.as_ref()), end: None }
    }

    /// The keys from `start` on, up to and without `end`; empty when `end <= start`.
    pub fn between(start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Self {
        Self {
            start: Bytes::copy_from_slice(start.as_ref()),
            end: Some(Bytes::copy_from_slice(end.as_ref())),
        }
    }

    /// etcd's spelling: an empty `range_end` is the single key, `"\0"` is "from `key` on", anything
    /// else is the exclusive end.
    pub fn from_etcd(key: &Bytes, range_end: &Bytes) -> Self {
        match range_end.as_ref() {
            [] => Self { start: key.clone(), end: Some(successor(key)) },
            [0] => Self { start: key.clone(), end: None },
            _ => Self { start: key.clone(), end: Some(range_end.clone()) },
        }
    }

    /// The first key the range may hold.
    pub fn start(&self) -> &Bytes {
        &self.start
    }

    /// The first key after the range, or `None` when it runs to the last key.
    pub fn end(&self) -> Option<&Bytes> {
        self.end.as_ref()
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        has_begun(&self.start, key) && self.end.as_ref().is_none_or(|end| key < end.as_ref())
    }

    /// Whether no key can lie in the range.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end <= &self.start)
    }
}

/// Anything that names a range of keys: `a..b`, `a..`, `..b`, `a..=b`, `..=b`, `..`, a pair of
/// [`Bound`]s, or a [`KeyRange`]. The bounds may be anything that is `AsRef<[u8]>`.
///
/// It stands in for [`std::ops::RangeBounds`], whose blanket implementations would make callers
/// spell out the key type.
pub trait AsKeyRange {
    /// The range, in its one form.
    fn to_key_range(&self) -> KeyRange;
}

impl AsKeyRange for KeyRange {
    fn to_key_range(&self) -> KeyRange {
        self.clone()
    }
}

impl<R: AsKeyRange + ?Sized> AsKeyRange for &R {
    fn to_key_range(&self) -> KeyRange {
        (**self).to_key_range()
    }
}

impl AsKeyRange for RangeFull {
    fn to_key_range(&self) -> KeyRange {
        KeyRange::all()
    }
}

impl<K: AsRef<[u8]>> AsKeyRange for Range<K> {
    fn to_key_range(&self) -> KeyRange {
        KeyRange::between(&self.start, &self.end)
    }
}

impl<K: AsRef<[u8]>> AsKeyRange for RangeFrom<K> {
    fn to_key_range(&self) -> KeyRange {
        KeyRange::from_key(&self.start)
    }
}

impl<K: AsRef<[u8]>> AsKeyRange for RangeTo<K> {
    fn to_key_range(&self) -> KeyRange {
        KeyRange::between([], &self.end)
    }
}

impl<K: AsRef<[u8]>> AsKeyRange for RangeInclusive<K> {
    fn to_key_range(&self) -> KeyRange {
        KeyRange::between(self.start(), successor(self.end().as_ref()))
    }
}

impl<K: AsRef<[u8]>> AsKeyRange for RangeToInclusive<K> {
    fn to_key_range(&self) -> KeyRange {
        KeyRange::between([], successor(self.end.as_ref()))
    }
}

impl<K: AsRef<[u8]>> AsKeyRange for (Bound<K>, Bound<K>) {
    fn to_key_range(&self) -> KeyRange {
        let start = match &self.0 {
            Bound::Included(key) => Bytes::copy_from_slice(key.as_ref()),
            Bound::Excluded(key) => successor(key.as_ref()),
            Bound::Unbounded => Bytes::new(),
        };
        let end = match &self.1 {
            Bound::Included(key) => Some(successor(key.as_ref())),
            Bound::Excluded(key) => Some(Bytes::copy_from_slice(key.as_ref())),
            Bound::Unbounded => None,
        };
        KeyRange { start, end }
    }
}

/// The `range_end` that, with `prefix` as the key, names every key beginning with `prefix`.
///
/// ```
/// use annals::prefix_range_end;
///
/// assert_eq!(prefix_range_end("/a"), "/b");
/// assert_eq!(prefix_range_end([0xff]), "\0"); // no key follows the prefix: from here on
/// ```
pub fn prefix_range_end(prefix: impl AsRef<[u8]>) -> Bytes {
    prefix_end(prefix.as_ref()).unwrap_or_else(|| Bytes::from_static(b"\0"))
}

/// The first key that follows every key beginning with `prefix`, if any does.
fn prefix_end(prefix: &[u8]) -> Option<Bytes> {
    let kept = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    Some(Bytes::from(end))
}

/// The key directly after `key`.
fn successor(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    Bytes::from(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_becomes_one_range() {
        assert_eq!(("a".."c").to_key_range(), KeyRange::between("a", "c"));
        assert_eq!((..).to_key_range(), KeyRange::all());
        assert_eq!(("a"..).to_key_range(), KeyRange::from_key("a"));
        assert_eq!((.."c").to_key_range(), KeyRange::between("", "c"));
        assert_eq!(("a"..="c").to_key_range(), KeyRange::between("a", "c\0"));
        assert_eq!((..="c").to_key_range(), KeyRange::between("", "c\0"));
        let bounds = (Bound::Excluded("a"), Bound::<&str>::Unbounded);
        assert_eq!(bounds.to_key_range(), KeyRange::from_key("a\0"));
        assert_eq!((b"a".to_vec()..b"b".to_vec()).to_key_range(), KeyRange::between("a", "b"));
    }

    #[test]
    fn a_prefix_ends_where_the_next_one_starts() {
        assert_eq!(KeyRange::prefix("/a"), KeyRange::between("/a", "/b"));
        assert_eq!(KeyRange::prefix([b'a', 0xff]), KeyRange::between([b'a', 0xff], "b"));
        assert_eq!(KeyRange::prefix([0xff, 0xff]), KeyRange::from_key([0xff, 0xff]));
        assert_eq!(KeyRange::prefix(""), KeyRange::all());
    }

    #[test]
    fn etcd_range_ends() {
        let of = |key: &'static str, end: &'static str| {
            KeyRange::from_etcd(
                &Bytes::from_static(key.as_bytes()),
                &Bytes::from_static(end.as_bytes()),
            )
        };
        assert_eq!(of("a", ""), KeyRange::key("a"));
        assert_eq!(of("a", "\0"), KeyRange::from_key("a"));
        assert!(of("b", "a").is_empty() && of("b", "b").is_empty());
        assert!(of("a", "b").contains(b"a") && !of("a", "b").contains(b"b"));
    }
}
