//! The keys that a user may read or write: all grants of all roles, merged, so that a range which several grants cover
//! together is covered.

use crate::proto::authpb::{Permission, permission};

/// The end of a range which has none.
type End<'a> = Option<&'a [u8]>;

/// What one user may do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    read: Merged,
    write: Merged,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// Ranges in the order of keys that neither overlap nor touch.
#[derive(Debug, Default, PartialEq, Eq)]
struct Merged(Vec<(Vec<u8>, Option<Vec<u8>>)>);

/// The end of a range as requests and permissions write it: `\0` alone is none.
fn end_of(range_end: &[u8]) -> End<'_> {
    (range_end != [0]).then_some(range_end)
}

/// Whether one end is not before the other.
fn reaches(end: End<'_>, other: End<'_>) -> bool {
    match (end, other) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(end), Some(other)) => end >= other,
    }
}

/// Whether a permission's range is one: of a key, up to a later key, or without an end.
pub(super) fn is_valid(key: &[u8], range_end: &[u8]) -> bool {
    !key.is_empty() && (range_end.is_empty() || range_end == [0] || key < range_end)
}

impl Ranges {
    /// Those of some permissions. One whose type or range is not known gives nothing.
    pub(super) fn new<'a>(permissions: impl Iterator<Item = &'a Permission>) -> Self {
        let (mut read, mut write) = (Vec::new(), Vec::new());
        for granted in permissions.filter(|granted| is_valid(&granted.key, &granted.range_end)) {
            let end = if granted.range_end.is_empty() {
                Some([&granted.key[..], &[0]].concat())
            } else {
                end_of(&granted.range_end).map(<[u8]>::to_vec)
            };
            let range = || (granted.key.to_vec(), end.clone());
            match permission::Type::try_from(granted.perm_type) {
                Ok(permission::Type::Read) => read.push(range()),
                Ok(permission::Type::Write) => write.push(range()),
                Ok(permission::Type::Readwrite) => {
                    read.push(range());
                    write.push(range());
                }
                Err(_) => {}
            }
        }
        Self { read: Merged::new(read), write: Merged::new(write) }
    }

    /// Whether all of a request's range is covered.
    pub(super) fn cover(&self, access: Access, key: &[u8], range_end: &[u8]) -> bool {
        let merged = match access {
            Access::Read => &self.read,
            Access::Write => &self.write,
        };
        if range_end.is_empty() { merged.holds(key) } else { merged.cover(key, end_of(range_end)) }
    }
}

impl Merged {
    fn new(mut ranges: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        for (begin, end) in ranges {
            match merged.last_mut() {
                Some((_, last)) if reaches(last.as_deref(), Some(&begin)) => {
                    if !reaches(last.as_deref(), end.as_deref()) {
                        *last = end;
                    }
                }
                _ => merged.push((begin, end)),
            }
        }
        Self(merged)
    }

    /// The range with a key in it.
    fn around(&self, key: &[u8]) -> Option<End<'_>> {
        let after = self.0.partition_point(|(begin, _)| begin.as_slice() <= key);
        let (_, end) = &self.0[after.checked_sub(1)?];
        let end = end.as_deref();
        end.is_none_or(|end| key < end).then_some(end)
    }

    fn holds(&self, key: &[u8]) -> bool {
        self.around(key).is_some()
    }

    /// Whether a range is covered. One that ends before it begins is where its key is, as etcd has it.
    fn cover(&self, key: &[u8], end: End<'_>) -> bool {
        self.around(key).is_some_and(|around| reaches(around, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(granted: &[(permission::Type, &str, &str)]) -> Ranges {
        let granted: Vec<_> = granted
            .iter()
            .map(|(perm_type, key, range_end)| Permission {
                perm_type: (*perm_type).into(),
                key: key.as_bytes().to_vec().into(),
                range_end: range_end.as_bytes().to_vec().into(),
            })
            .collect();
        Ranges::new(granted.iter())
    }

    use permission::Type::{Read, Readwrite, Write};

    #[test]
    fn grants_cover_together_what_none_covers_alone() {
        let all =
            ranges(&[(Read, "a", "c"), (Readwrite, "c", "e"), (Read, "d", "g"), (Write, "x", "")]);
        for (access, key, end, covered) in [
            (Access::Read, "a", "g", true),
            (Access::Read, "a", "h", false),
            (Access::Read, "b", "f", true),
            (Access::Read, "0", "b", false),
            (Access::Read, "f", "", true),
            (Access::Read, "g", "", false),
            (Access::Read, "f", "\0", false),
            (Access::Write, "c", "e", true),
            (Access::Write, "c", "f", false),
            (Access::Write, "b", "d", false),
            (Access::Write, "x", "", true),
            (Access::Write, "x", "x\0", true),
            (Access::Write, "x\0", "", false),
            (Access::Write, "w", "", false),
            (Access::Read, "x", "", false),
            // A range that is empty: where its key is.
            (Access::Read, "b", "a", true),
            (Access::Read, "z", "a", false),
        ] {
            assert_eq!(
                all.cover(access, key.as_bytes(), end.as_bytes()),
                covered,
                "{key:?} {end:?}"
            );
        }
    }

    #[test]
    fn a_gap_is_not_covered_and_a_single_key_beside_a_range_closes_one() {
        let gap = ranges(&[(Read, "a", "c"), (Read, "c\0", "e")]);
        assert!(!gap.cover(Access::Read, b"a", b"e"));
        let closed = ranges(&[(Read, "a", "c"), (Read, "c\0", "e"), (Read, "c", "")]);
        assert!(closed.cover(Access::Read, b"a", b"e"));
    }

    #[test]
    fn a_grant_without_an_end_covers_all_that_follow() {
        let open = ranges(&[(Read, "m", "\0"), (Read, "p", "q"), (Read, "a", "m")]);
        assert!(open.cover(Access::Read, b"a", b"\0"));
        assert!(open.cover(Access::Read, b"\xff\xff", b"\xff\xff\xff"));
        assert!(!open.cover(Access::Read, b"\0", b"\0"));
        let all = ranges(&[(Readwrite, "\0", "\0")]);
        assert!(all.cover(Access::Write, b"\0", b"\0") && all.cover(Access::Read, b"x", b""));
    }

    #[test]
    fn what_is_no_range_gives_nothing() {
        assert_eq!(ranges(&[(Read, "", "a"), (Read, "b", "a"), (Read, "", "")]), Ranges::default());
        let unknown = Permission { perm_type: 9, key: "a".into(), range_end: "".into() };
        assert_eq!(Ranges::new([unknown].iter()), Ranges::default());
        let valid = [("a", ""), ("a", "b"), ("a", "\0"), ("\0", "\0")];
        assert!(valid.iter().all(|(key, end)| is_valid(key.as_bytes(), end.as_bytes())));
        let wrong = [("", ""), ("", "\0"), ("b", "a"), ("a", "a")];
        assert!(wrong.iter().all(|(key, end)| !is_valid(key.as_bytes(), end.as_bytes())));
    }
}
