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
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{self, error::TrySendError};

use super::kinds::{Api, Served};
use super::table::View;

/// What clients that watch may take of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// So many watches may be open at the same time.
    pub(crate) watches: usize,
    /// So many lines wait for a client that does not read.
    pub(crate) lines: usize,
    /// So long a watch waits for such a client, once no more lines can.
    pub(crate) patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { watches: 1_000, lines: 64, patience: Duration::from_secs(30) }
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
        let (lines, receiver) = mpsc::channel::<String>(self.limits.lines);
        let thread = thread::Builder::new().name("watch".into());
        thread.spawn(move || self.write(&lines)).map_err(|error| too_many(&error.to_string()))?;
        let headers = [(header::CONTENT_TYPE, "application/json")];
        Ok((headers, Body::from_stream(Lines(receiver))).into_response())
    }

    fn write(mut self, lines: &mpsc::Sender<String>) {
        let begin = Instant::now();
        let timeout = self.timeout;
        let is_over = || timeout.is_some_and(|timeout| begin.elapsed() >= timeout);
        let handle = self.watch.handle();
        let mut is_first = true;
        while !lines.is_closed() && !is_over() {
            let Some(event) = self.watch.next_timeout(Duration::from_millis(200)) else {
                if handle.is_ended() {
                    break;
                }
                continue;
            };
            let event = self.view.event(&self.served, json!(event), is_first);
            is_first = false;
            if !send(lines, format!("{event}\n"), self.limits.patience, &is_over) {
                break;
            }
        }
    }
}

/// Whether somebody takes the line: who does not read for a while, or is gone, does not.
fn send(
    lines: &mpsc::Sender<String>,
    mut line: String,
    patience: Duration,
    is_over: &dyn Fn() -> bool,
) -> bool {
    let begin = Instant::now();
    loop {
        match lines.try_send(line) {
            Ok(()) => return true,
            Err(TrySendError::Full(back)) if begin.elapsed() < patience && !is_over() => {
                line = back;
                thread::sleep(Duration::from_millis(20));
            }
            Err(_) => return false,
        }
    }
}

fn too_many(why: &str) -> Status {
    let message = format!("too many watches at the same time, please try again later: {why}");
    Status::new(Reason::TooManyRequests, message)
}

struct Lines(mpsc::Receiver<String>);

impl futures_core::Stream for Lines {
    type Item = std::result::Result<String, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|line| line.map(Ok))
    }
}
