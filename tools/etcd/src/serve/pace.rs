//! How fast a client may send what asks for nothing.
//!
//! Some frames of HTTP/2 cost their sender nearly nothing and the server an answer, or a call that is begun in vain:
//! `PING`, `SETTINGS`, `RST_STREAM`, `WINDOW_UPDATE`, `DATA` of a few bytes. etcd ends connections with too many pings and has no
//! answer to the others. Ending a connection that has work on it helps nobody, so a client that sends too many waits: its
//! next bytes are read later, they fill its connection, and it sleeps. Everyone else goes on.
//!
//! What clients do send is not slowed: calls and what is written to the client earn as many such frames as the
//! clients of any language send with them (grpc-go sends a ping with each answer, to learn what the way can carry), and a
//! connection saves up for the day when it cancels everything. (One that cancels thousands of calls before any was
//! answered has nothing saved up, and waits.)

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep};

const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 0x1;

/// Bytes before each message of gRPC. Fewer ask for nothing.
const PREFIX: usize = 5;

/// What a connection earns a frame by being there. It does so for [`AT_FIRST`] before it begins.
const EVERY: Duration = Duration::from_millis(1);

/// Frames that a new connection may send: few, since a flood can have as many connections as it likes.
const AT_FIRST: u32 = 100;

/// Frames that a connection can have saved up. So many streams can be cancelled at once.
const AT_MOST: u64 = 10_000;

/// Bytes written to the client that earn a frame. It answers each message with two, at most.
const BYTES: usize = 32;

/// Bytes that a client may send that has earned nothing.
const UNEARNED: usize = 1024;

/// Bytes that may come, for each frame that was earned.
const EARNED: usize = 64;

/// How soon a client that waits is looked at again.
const LOOK: Duration = Duration::from_millis(200);

/// Frames with which clients say hello: theirs, whatever the others do.
const GREETING: u64 = 8;

/// Bytes of a write that count: many small messages at once, but not all of a large one.
const COUNTED: usize = 2048;

/// Frames that all connections together earn in a millisecond by being there, and save up for a second.
const TOGETHER: u64 = 20;

/// What the time still has for all connections, for those whose frames were not earned otherwise.
#[derive(Debug)]
pub(crate) struct Spare(Mutex<(Instant, u64)>);

impl Default for Spare {
    fn default() -> Self {
        Self(Mutex::new((Instant::now(), TOGETHER * 1000)))
    }
}

impl Spare {
    /// Takes so many frames, or what there is.
    fn take(&self, wanted: u64) -> u64 {
        let mut spare = self.0.lock();
        let (since, left) = &mut *spare;
        let passed = millis(since.elapsed());
        *since += EVERY.saturating_mul(u32::try_from(passed).unwrap_or(u32::MAX));
        *left = left.saturating_add(passed.saturating_mul(TOGETHER)).min(TOGETHER * 1000);
        let taken = wanted.min(*left);
        *left -= taken;
        taken
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The account of a connection.
pub(crate) struct Pace {
    /// Frames that were earned by what was asked and answered.
    earned: u64,
    /// Frames that came and were not earned: nothing is read until there are none.
    owed: u64,
    /// Since when time has not been counted.
    since: Instant,
    /// Bytes written that have not earned a frame yet.
    written: usize,
    spare: Arc<Spare>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Told when the connection is slowed for the first time.
    slowed: Option<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { earned, owed, .. } = self;
        f.debug_struct("Pace").field("earned", earned).field("owed", owed).finish_non_exhaustive()
    }
}

impl Pace {
    /// That of a new connection; `slowed` is called once at most.
    pub(crate) fn new(spare: Arc<Spare>, slowed: impl FnOnce() + Send + 'static) -> Self {
        let now = Instant::now();
        let since = now.checked_sub(EVERY * AT_FIRST).unwrap_or(now);
        let slowed: Box<dyn FnOnce() + Send> = Box::new(slowed);
        Self {
            earned: GREETING,
            owed: 0,
            since,
            written: 0,
            spare,
            sleep: None,
            slowed: Some(slowed),
        }
    }

    /// A frame has come: its kind, its flags and the length of what is in it.
    pub(crate) fn read(&mut self, kind: u8, flags: u8, length: usize) {
        match kind {
            HEADERS => self.earn(1),
            DATA if length >= PREFIX || flags & END_STREAM != 0 => {}
            // A call that is cancelled at once costs, though it earned one.
            RST_STREAM => self.spend(2),
            _ => self.spend(1),
        }
    }

    /// So many bytes went to the client.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.written += bytes.min(COUNTED);
        self.earn((self.written / BYTES) as u64);
        self.written %= BYTES;
    }

    fn earn(&mut self, frames: u64) {
        let paid = frames.min(self.owed);
        self.owed -= paid;
        self.earned = self.earned.saturating_add(frames - paid).min(AT_MOST);
    }

    fn spend(&mut self, frames: u64) {
        let paid = frames.min(self.earned);
        self.earned -= paid;
        self.owed = self.owed.saturating_add(frames - paid);
    }

    /// Ready when more may be read. Pending: look whether the client is still there.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.owed > 0 {
            let is_short = self.count_time();
            if self.owed == 0 {
                break;
            }
            if let Some(slowed) = self.slowed.take() {
                slowed();
            }
            let owed = u32::try_from(self.owed).unwrap_or(u32::MAX);
            // Where time has nothing to spare it is of no use to look often.
            let wait = if is_short { LOOK } else { EVERY.saturating_mul(owed).min(LOOK) };
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(wait)));
            ready!(sleep.as_mut().poll(context));
            self.sleep = None;
        }
        Poll::Ready(())
    }

    /// Bytes of frames that may be read before the account is looked at again: few, until the client has earned more.
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.earned).map_or(usize::MAX, |earned| UNEARNED + earned * EARNED)
    }

    /// Pays by the time that has passed; whether it had less to spare than this connection may have.
    fn count_time(&mut self) -> bool {
        let passed = millis(self.since.elapsed());
        let due = self.owed.min(passed).min(AT_MOST);
        let paid = self.spare.take(due);
        self.owed -= paid;
        let counted = paid + passed.saturating_sub(AT_MOST);
        self.since += EVERY.saturating_mul(u32::try_from(counted).unwrap_or(u32::MAX));
        paid < due
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const PING: u8 = 6;

    fn pace() -> (Pace, Arc<AtomicUsize>) {
        let told = Arc::new(AtomicUsize::new(0));
        let slowed = Arc::clone(&told);
        let slowed = move || {
            slowed.fetch_add(1, Ordering::Relaxed);
        };
        (Pace::new(Arc::default(), slowed), told)
    }

    /// How long the client waits now.
    async fn waits(pace: &mut Pace) -> Duration {
        let begun = Instant::now();
        poll_fn(|context| pace.poll(context)).await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_more_than_it_earned_waits_as_long_as_that_takes() {
        let (mut pace, told) = pace();
        for _ in 0..u64::from(AT_FIRST) + GREETING {
            pace.read(PING, 0, 8);
        }
        assert_eq!(waits(&mut pace).await, Duration::ZERO);
        assert_eq!(told.load(Ordering::Relaxed), 0);
        for _ in 0..500 {
            pace.read(PING, 0, 8);
        }
        assert_eq!(waits(&mut pace).await, 500 * EVERY);
        for _ in 0..3 {
            pace.read(RST_STREAM, 0, 4);
        }
        assert_eq!(waits(&mut pace).await, 6 * EVERY);
        assert_eq!(told.load(Ordering::Relaxed), 1);
        // Time that has passed meanwhile counts, and no more than can be saved up.
        tokio::time::advance(Duration::from_secs(3600)).await;
        for _ in 0..AT_MOST + 7 {
            pace.read(PING, 0, 8);
        }
        assert_eq!(waits(&mut pace).await, 7 * EVERY);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_asked_and_answered_earns_what_comes_with_it() {
        let (mut pace, _) = pace();
        // A call, a ping and two updates of windows with its answer, on and on.
        for _ in 0..100_000 {
            pace.read(HEADERS, 4, 60);
            pace.read(DATA, 1, 20);
            pace.wrote(100);
            pace.read(8, 0, 4);
            pace.read(8, 0, 4);
            pace.read(PING, 0, 8);
            assert_eq!(waits(&mut pace).await, Duration::ZERO);
        }
        // Events, each with a ping.
        for _ in 0..100_000 {
            pace.wrote(40);
            pace.read(PING, 0, 8);
            assert_eq!(waits(&mut pace).await, Duration::ZERO);
        }
        // Messages of a stream: they ask for something.
        for _ in 0..100_000 {
            pace.read(DATA, 0, 10);
            assert_eq!(waits(&mut pace).await, Duration::ZERO);
        }
        // All that it has under way is cancelled.
        for _ in 0..5000 {
            pace.read(HEADERS, 4, 60);
        }
        for _ in 0..5000 {
            pace.read(RST_STREAM, 0, 4);
        }
        let waited = waits(&mut pace).await;
        assert!(waited < Duration::from_secs(5), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn answers_to_pings_do_not_pay_for_them() {
        let (mut pace, told) = pace();
        let begun = Instant::now();
        for _ in 0..10_000 {
            waits(&mut pace).await;
            pace.read(PING, 0, 8);
            pace.wrote(17);
        }
        assert!(begun.elapsed() > Duration::from_secs(4), "{:?}", begun.elapsed());
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }
}
