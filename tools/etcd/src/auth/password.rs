//! Passwords: hashed by bcrypt as etcd does it, so that each can check what the other has hashed.

use bcrypt::Version;

use super::refusal::{NO_RANDOM, PASSWORD_TOO_LONG, Refusal};

/// What bcrypt looks at; Go's refuses what is longer.
const MAX_BYTES: usize = 72;

/// The cost that etcd takes where none, or none that is allowed, is asked for.
pub(super) const DEFAULT_COST: u32 = 10;

/// The cost to be used where one is asked for.
pub(super) fn allowed_cost(cost: u32) -> u32 {
    if (4..=31).contains(&cost) { cost } else { DEFAULT_COST }
}

/// The hash of a password. Takes a tenth of a second by design: not for a thread that others wait for.
pub(super) fn hash(password: &str, cost: u32) -> Result<Vec<u8>, Refusal> {
    if password.len() > MAX_BYTES {
        return Err(PASSWORD_TOO_LONG);
    }
    // "2a" is what Go writes; the hash is the same.
    match bcrypt::hash_with_result(password, cost) {
        Ok(hash) => Ok(hash.format_for_version(Version::TwoA).into_bytes()),
        Err(_) => Err(NO_RANDOM),
    }
}

/// Whether a password has this hash. A hash that is not one is that of no password.
pub(super) fn is_right(password: &str, hash: &[u8]) -> bool {
    std::str::from_utf8(hash).is_ok_and(|hash| bcrypt::verify(password, hash).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn a_password_is_known_again_and_another_is_not() {
        for password in ["", "p", "with a \0 inside", &"l".repeat(72)] {
            let hashed = hash(password, 4).unwrap();
            assert!(hashed.starts_with(b"$2a$04$"));
            assert!(is_right(password, &hashed));
            assert!(!is_right("other", &hashed));
        }
        assert_eq!(hash(&"l".repeat(73), 4), Err(PASSWORD_TOO_LONG));
        assert!(!is_right("", b"") && !is_right("x", b"\xff") && !is_right("x", b"$2a$04$"));
    }

    #[test]
    fn gos_hashes_are_known() {
        // From the tests of golang.org/x/crypto/bcrypt.
        let hash = b"$2a$10$XajjQvNhvvRt5GSeFk1xFeyqRrsxkhBkUiQeg0dt.wU1qD4aFDcga";
        assert!(is_right("allmine", hash) && !is_right("allyours", hash));
    }

    #[test]
    fn a_cost_that_is_not_allowed_is_the_usual_one() {
        assert_eq!([0, 3, 4, 31, 32].map(allowed_cost), [10, 10, 4, 31, 10]);
    }
}
