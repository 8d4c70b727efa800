//! Watches: one line of JSON for each event, for as many clients as there may be, as long as they read.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use annals::Store;
use annals::object::{ObjectWatch, Reason, Result, Status};
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::kinds::{Api, Served};
use super::table::View;

/// What clients that watch may take of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// So many watches may be open at the same time.
    pub(crate) watches: usize,
    /// So many lines wait for a client that does not read.
    pub(crate) lines: usize,
    /// And so many bytes, or one line that is longer.
    pub(crate) bytes: u32,
    /// So long a watch waits for such a client, once no more can.
    pub(crate) patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { watches: 1_000, lines: 64, bytes: 1 << 20, patience: Duration::from_secs(30) }
    }
}

/// A watch that has been asked for, and its place among those that may be open.
pub(crate) struct Watching {
    pub(crate) watch: ObjectWatch<Store>,
    pub(crate) served: Arc<Served>,
    pub(crate) view: View,
    pub(crate) timeout: Option<Duration>,
    limits: Limits,
    _place: OwnedSemaphorePermit,
}

impl Watching {
    /// Opens the watch if one more may be open.
    pub(crate) fn open(
        api: &Api,
        served: &Arc<Served>,
        view: View,
        timeout: Option<Duration>,
        open: impl FnOnce() -> Result<ObjectWatch<Store>>,
    ) -> Result<Self> {
        let place = Arc::clone(&api.watches).try_acquire_owned();
        let place = place.map_err(|_| too_many(&format!("{} are open", api.limits.watches)))?;
        let (served, limits) = (Arc::clone(served), api.limits);
        Ok(Self { watch: open()?, served, view, timeout, limits, _place: place })
    }

    /// Its lines as they come. It waits in a thread of its own: those that answer requests are for requests.
    pub(crate) fn into_response(self) -> Result<Response> {
        let (lines, receiver) = mpsc::channel(self.limits.lines);
        let room = Arc::new(Semaphore::new(self.limits.bytes as usize));
        let queue = Queue { lines, room, limits: self.limits };
        let thread = thread::Builder::new().name("watch".into());
        thread.spawn(move || self.write(&queue)).map_err(|error| too_many(&error.to_string()))?;
        let headers = [(header::CONTENT_TYPE, "application/json")];
        Ok((headers, Body::from_stream(Lines(receiver))).into_response())
    }

    fn write(mut self, queue: &Queue) {
        let begin = Instant::now();
        let timeout = self.timeout;
        let is_over = || timeout.is_some_and(|timeout| begin.elapsed() >= timeout);
        let handle = self.watch.handle();
        let mut is_first = true;
        while !queue.lines.is_closed() && !is_over() {
            let Some(event) = self.watch.next_timeout(Duration::from_millis(200)) else {
                if handle.is_ended() {
                    break;
                }
                continue;
            };
            let event = self.view.event(&self.served, json!(event), is_first);
            is_first = false;
            if !queue.send(format!("{event}\n"), &is_over) {
                break;
            }
        }
    }
}

/// A line, and the room that it takes as long as it waits.
type Waiting = (String, OwnedSemaphorePermit);

/// What waits for the client.
struct Queue {
    lines: mpsc::Sender<Waiting>,
    room: Arc<Semaphore>,
    limits: Limits,
}

impl Queue {
    /// Whether somebody takes the line: who does not read for a while, or is gone, does not.
    fn send(&self, mut line: String, is_over: &dyn Fn() -> bool) -> bool {
        let begin = Instant::now();
        let bytes = u32::try_from(line.len()).unwrap_or(u32::MAX).min(self.limits.bytes);
        loop {
            if let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(bytes) {
                match self.lines.try_send((line, room)) {
                    Ok(()) => return true,
                    Err(TrySendError::Full((back, _))) => line = back,
                    Err(TrySendError::Closed(_)) => return false,
                }
            }
            if self.lines.is_closed() || begin.elapsed() >= self.limits.patience || is_over() {
                return false;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn too_many(why: &str) -> Status {
    let message = format!("too many watches at the same time, please try again later: {why}");
    Status::new(Reason::TooManyRequests, message)
}

struct Lines(mpsc::Receiver<Waiting>);

impl futures_core::Stream for Lines {
    type Item = std::result::Result<String, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|waiting| waiting.map(|(line, _)| Ok(line)))
    }
}
