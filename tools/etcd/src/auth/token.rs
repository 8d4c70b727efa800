//! Tokens: what a user who has shown a password shows from then on, as etcd's "simple" ones.
//!
//! They are known to this server alone, and only as long as it runs and as they are used.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Letters of a token: 91 bits that nobody can guess.
const PREFIX: usize = 16;
/// How often those that are over are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// All tokens.
pub(super) struct Tokens {
    /// How long one is good that is not used.
    ttl: Duration,
    next: AtomicU64,
    /// `None` while nobody is asked for one.
    given: Mutex<Option<Given>>,
}

struct Given {
    tokens: HashMap<String, Token>,
    swept: Instant,
}

struct Token {
    user: String,
    used: Instant,
}

// Neither tokens nor whose they are.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

impl Tokens {
    pub(super) fn new(ttl: Duration) -> Self {
        Self { ttl, next: AtomicU64::new(1), given: Mutex::new(None) }
    }

    /// From now on tokens are given.
    pub(super) fn enable(&self) {
        let mut given = self.given.lock();
        if given.is_none() {
            *given = Some(Given { tokens: HashMap::new(), swept: Instant::now() });
        }
    }

    /// No token is good any more.
    pub(super) fn disable(&self) {
        *self.given.lock() = None;
    }

    /// A token for a user. While none are given, one that is good for nothing.
    pub(super) fn assign(&self, user: &str) -> String {
        self.assign_at(user, Instant::now())
    }

    fn assign_at(&self, user: &str, now: Instant) -> String {
        // Relaxed: only its being another one matters.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut token: String = (0..PREFIX)
            .map(|_| char::from(LETTERS[rand::random_range(0..LETTERS.len())]))
            .collect();
        token.push('.');
        token.push_str(&number.to_string());
        if let Some(given) = &mut *self.given.lock() {
            if now.saturating_duration_since(given.swept) >= SWEEP_EVERY {
                given.swept = now;
                given.tokens.retain(|_, token| !token.is_over(self.ttl, now));
            }
            given.tokens.insert(token.clone(), Token { user: user.to_owned(), used: now });
        }
        token
    }

    /// Whose token it is. That is a use of it.
    pub(super) fn user(&self, token: &str) -> Option<String> {
        self.user_at(token, Instant::now())
    }

    fn user_at(&self, token: &str, now: Instant) -> Option<String> {
        let mut given = self.given.lock();
        let tokens = &mut given.as_mut()?.tokens;
        let known = tokens.get_mut(token)?;
        if known.is_over(self.ttl, now) {
            tokens.remove(token);
            return None;
        }
        known.used = now;
        Some(known.user.clone())
    }

    /// No token of a user is good any more.
    pub(super) fn forget(&self, user: &str) {
        if let Some(given) = &mut *self.given.lock() {
            given.tokens.retain(|_, token| token.user != user);
        }
    }
}

impl Token {
    fn is_over(&self, ttl: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.used) > ttl
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn tokens() -> Tokens {
        let tokens = Tokens::new(TTL);
        tokens.enable();
        tokens
    }

    #[test]
    fn a_token_looks_like_etcds() {
        let token = tokens().assign("a");
        let (prefix, number) = token.split_once('.').unwrap();
        assert_eq!((prefix.len(), number), (16, "1"));
        assert!(prefix.bytes().all(|byte| LETTERS.contains(&byte)));
    }

    #[test]
    fn a_token_is_good_as_long_as_it_is_used() {
        let (tokens, start) = (tokens(), Instant::now());
        let token = tokens.assign_at("a", start);
        assert_eq!(tokens.user_at(&token, start + TTL).as_deref(), Some("a"));
        assert_eq!(tokens.user_at(&token, start + TTL * 2).as_deref(), Some("a"));
        let late = start + TTL * 3 + Duration::from_millis(1);
        assert_eq!(tokens.user_at(&token, late), None);
        assert_eq!(tokens.user_at(&token, start), None, "it does not come back");
        assert_eq!(tokens.user("other.1"), None);
    }

    #[test]
    fn tokens_that_are_over_need_no_room() {
        let (tokens, start) = (tokens(), Instant::now());
        for _ in 0..100 {
            tokens.assign_at("a", start);
        }
        tokens.assign_at("a", start + TTL * 2);
        assert_eq!(tokens.given.lock().as_ref().unwrap().tokens.len(), 1);
    }

    #[test]
    fn a_users_tokens_are_forgotten_and_others_are_not() {
        let tokens = tokens();
        let [first, second, other] = ["a", "a", "b"].map(|user| tokens.assign(user));
        tokens.forget("a");
        assert_eq!((tokens.user(&first), tokens.user(&second)), (None, None));
        assert_eq!(tokens.user(&other).as_deref(), Some("b"));
        tokens.enable();
        assert!(tokens.user(&other).is_some(), "it was enabled already");
        tokens.disable();
        assert!(tokens.user(&other).is_none());
        let none = tokens.assign("a");
        tokens.enable();
        assert!(tokens.user(&other).is_none() && tokens.user(&none).is_none());
    }
}
