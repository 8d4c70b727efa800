//! Large answers, which take memory until their clients have taken them.
//!
//! A range of everything is put together in memory as a whole, as the protocol has it. Many at once, for clients that
//! take them slowly or not at all, would have no bound: so few are read at a time, and while those that have been read
//! and not been taken are more than [`HELD_MAX`] bytes, one more is refused. Clients try again after such a refusal.
//! Small answers are not counted, and not refused. What writes is refused before it does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Response, Status};

use crate::errors::{STOPPED, TOO_MANY_REQUESTS, refuse};

/// Bytes of large answers after which others are refused.
const HELD_MAX: u64 = 256 << 20;

/// Answers that are read at a time.
const READS: usize = 8;

/// What is large.
const LARGE: u64 = 1 << 20;

/// The large answers of a server.
#[derive(Debug)]
pub(crate) struct Held {
    reads: Arc<Semaphore>,
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
        Self { reads: Arc::new(Semaphore::new(READS)), bytes: Arc::default() }
    }

    /// A place to read what may be large. It goes with the work to its end: that goes on when the client is gone.
    ///
    /// # Errors
    /// The server is stopping.
    pub(crate) async fn begin(&self) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.reads).acquire_owned().await.map_err(|_| refuse(STOPPED))
    }

    /// Refuses what writes and answers much, before it writes anything.
    ///
    /// # Errors
    /// There is too much that clients have not taken.
    pub(crate) fn check_room(&self) -> Result<(), Status> {
        if self.bytes.load(Ordering::Relaxed) >= HELD_MAX {
            return Err(refuse(TOO_MANY_REQUESTS));
        }
        Ok(())
    }

    /// Counts an answer of so many bytes until it has been taken. The place it was read in is given back afterwards.
    ///
    /// # Errors
    /// It is large, and there is too much that clients have not taken.
    pub(crate) fn hold<T>(&self, message: T, bytes: usize) -> Result<Response<T>, Status> {
        if bytes as u64 >= LARGE {
            self.check_room()?;
        }
        Ok(self.hold_written(message, bytes))
    }

    /// As [`hold`](Self::hold), of what has written something: that is not refused any more.
    pub(crate) fn hold_written<T>(&self, message: T, bytes: usize) -> Response<T> {
        let (mut answer, bytes) = (Response::new(message), bytes as u64);
        if bytes >= LARGE {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            let counted = Counted { all: Arc::clone(&self.bytes), bytes };
            answer.extensions_mut().insert(Share { _counted: Arc::new(counted) });
        }
        answer
    }

    /// As if so much had been read and not taken.
    #[cfg(test)]
    pub(crate) fn fill(&self) -> Response<()> {
        self.hold_written((), usize::try_from(HELD_MAX).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn what_is_held_is_counted_until_it_is_gone() {
        let held = Held::new();
        let all = usize::try_from(HELD_MAX).unwrap();
        assert!(held.hold((), 1).unwrap().extensions().get::<Share>().is_none());
        let answer = held.hold((), all).unwrap();
        assert_eq!(held.hold((), all).unwrap_err().code(), tonic::Code::ResourceExhausted);
        assert!(held.hold((), 1).is_ok());
        // What has been written is answered all the same, and counts.
        assert!(held.check_room().is_err());
        let written = held.hold_written((), all);
        assert!(written.extensions().get::<Share>().is_some());
        drop(answer);
        assert!(held.check_room().is_err());
        drop(written);
        assert!(held.check_room().is_ok() && held.hold((), all).is_ok());
    }
}
