//! Large answers, which take memory until their clients have taken them.
//!
//! A range of everything is put together in memory as a whole, as the protocol has it. Many at once, for clients that
//! take them slowly or not at all, would have no bound: so few are read at a time, and while those that have been read
//! and not been taken are more than [`HELD_MAX`] bytes, no more are. Clients try again after such a refusal. Small
//! answers are not counted, and not refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::{Response, Status};

use crate::errors::{STOPPED, TOO_MANY_REQUESTS, refuse};

/// Bytes of large answers after which no more are read.
const HELD_MAX: u64 = 256 << 20;

/// Answers that are read at a time.
const READS: usize = 8;

/// What is large.
const LARGE: u64 = 64 << 10;

/// The large answers of a server.
#[derive(Debug)]
pub(crate) struct Held {
    reads: Semaphore,
    bytes: Arc<AtomicU64>,
}

/// An answer's share, which goes with it to its end.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    _counted: Arc<Counted>,
}

#[derive(Debug)]
struct Counted {
    all: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Relaxed here and below: it counts, and orders nothing.
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Held {
    pub(crate) fn new() -> Self {
        Self { reads: Semaphore::new(READS), bytes: Arc::default() }
    }

    /// A place to read what may be large.
    ///
    /// # Errors
    /// There is too much that clients have not taken.
    pub(crate) async fn begin(&self) -> Result<SemaphorePermit<'_>, Status> {
        let place = self.reads.acquire().await.map_err(|_| refuse(STOPPED))?;
        let is_full = self.bytes.load(Ordering::Relaxed) >= HELD_MAX;
        if is_full { Err(refuse(TOO_MANY_REQUESTS)) } else { Ok(place) }
    }

    /// Counts an answer of so many bytes until it has been taken.
    pub(crate) fn hold<T>(&self, answer: &mut Response<T>, bytes: usize) {
        let bytes = bytes as u64;
        if bytes >= LARGE {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            let counted = Counted { all: Arc::clone(&self.bytes), bytes };
            answer.extensions_mut().insert(Share { _counted: Arc::new(counted) });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[tokio::test]
    async fn what_is_held_is_counted_until_it_is_gone() {
        let held = Held::new();
        let mut answer = Response::new(());
        held.hold(&mut answer, 1);
        assert!(answer.extensions().get::<Share>().is_none());
        held.hold(&mut answer, usize::try_from(HELD_MAX).unwrap());
        assert_eq!(held.begin().await.unwrap_err().code(), tonic::Code::ResourceExhausted);
        drop(answer);
        let places = [held.begin().await.unwrap(), held.begin().await.unwrap()];
        assert_eq!(places.len(), 2);
    }
}
