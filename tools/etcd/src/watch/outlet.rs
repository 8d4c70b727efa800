//! Where the watches of a stream meet: what is sent, in which order, and what of it says that all is told.
//!
//! A notice of progress for the whole stream promises that everything up to its revision has been sent, and a client
//! goes on from there when its connection breaks. So it must neither come before an event of that revision nor after
//! one of a later revision. Each watch has a *position*, up to which all its events are in the channel; a notice is sent
//! when all positions have reached the last event that was sent. Both are decided where the order is made: under one
//! lock, with the place in the channel reserved before.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use annals::WatchHandle;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};

use super::answer::Answer;
use super::{ANSWER_BYTES, TURNS, Told};
use crate::proto::etcdserverpb as pb;

/// The number in answers that are of no watch.
pub(super) const NO_WATCH: i64 = -1;

/// The answers of a stream, and its watches.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) to: mpsc::Sender<Told>,
    /// Of the watches that hold what they have read.
    pub(super) turns: Semaphore,
    bytes: Arc<Semaphore>,
    /// The head of answers, but for the revision.
    head: pb::ResponseHeader,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    watches: HashMap<i64, Entry>,
    /// Watches that the store has ended. As in etcd, their numbers are taken until the client cancels them, too.
    ended: HashSet<i64>,
    /// The number tried first for a watch that brings none.
    next_id: i64,
    /// The revision of the last event that was sent.
    last_event: u64,
    /// Whether a notice of progress is asked for, of at least this revision.
    wanted: Option<u64>,
    /// Watches that were asked for theirs and have not answered.
    asked: usize,
}

#[derive(Debug)]
struct Entry {
    handle: WatchHandle,
    /// The first revision it tells, if it was asked for: of what happens from now on, nothing begins later.
    starts: u64,
    /// All events up to this revision have been sent.
    position: u64,
    /// Whether its next notice of progress was asked for by the stream, and is nobody else's.
    asked: bool,
}

/// Whether there is somebody to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goes {
    On,
    /// The watch was cancelled, or the client is gone.
    Over,
}

fn told(answer: pb::WatchResponse) -> Told {
    Told { answer: answer.into(), _bytes: None }
}

impl State {
    fn is_taken(&self, id: i64) -> bool {
        self.watches.contains_key(&id) || self.ended.contains(&id)
    }

    /// Takes a watch out, and no longer waits for its progress.
    fn take(&mut self, id: i64) -> Option<Entry> {
        let entry = self.watches.remove(&id)?;
        self.asked -= usize::from(entry.asked);
        Some(entry)
    }

    /// The revision of a notice of progress, if one is wanted and may be sent; else whoever is behind is asked again.
    fn progress(&mut self) -> Option<u64> {
        let wanted = self.wanted?;
        // Each answer comes here: looking at all watches each time would take its time where there are many.
        if self.asked > 0 {
            return None;
        }
        let needed = wanted.max(self.last_event);
        let least = self.watches.values().map(|entry| entry.position).min();
        let Some(least) = least else {
            self.wanted = None;
            return None;
        };
        if least >= needed {
            self.wanted = None;
            return Some(least);
        }
        for entry in self.watches.values_mut() {
            if entry.position < needed && !entry.asked {
                entry.asked = true;
                self.asked += 1;
                entry.handle.request_progress();
            }
        }
        None
    }
}

impl Outlet {
    pub(super) fn new(to: mpsc::Sender<Told>, head: pb::ResponseHeader) -> Self {
        let (turns, bytes) = (Semaphore::new(TURNS), Semaphore::new(ANSWER_BYTES as usize));
        Self { to, turns, bytes: Arc::new(bytes), head, state: Mutex::default() }
    }

    /// How many watches there are.
    pub(super) fn watches(&self) -> usize {
        let state = self.state.lock();
        state.watches.len() + state.ended.len()
    }

    /// A number for a watch: the one asked for, or a free one for 0. `None` if it is taken.
    pub(super) fn number(&self, asked: i64) -> Option<i64> {
        let mut state = self.state.lock();
        if asked != 0 {
            return (!state.is_taken(asked)).then_some(asked);
        }
        while state.is_taken(state.next_id) {
            state.next_id = state.next_id.wrapping_add(1);
        }
        let id = state.next_id;
        state.next_id = state.next_id.wrapping_add(1);
        Some(id)
    }

    /// Takes a watch in that tells what happens after `position`; `starts` is the first revision that was asked for, or 0.
    pub(super) fn insert(&self, id: i64, handle: WatchHandle, starts: u64, position: u64) {
        let entry = Entry { handle, starts, position, asked: false };
        self.state.lock().watches.insert(id, entry);
    }

    /// Notes that the store has ended a watch. Answers whether it was there: then its client is to be told.
    pub(super) fn end(&self, id: i64) -> bool {
        let mut state = self.state.lock();
        let entry = state.take(id);
        if entry.is_some() {
            state.ended.insert(id);
        }
        entry.is_some()
    }

    /// Ends a watch. Answers whether it was there: nothing of it is sent after this.
    pub(super) fn remove(&self, id: i64) -> bool {
        let mut state = self.state.lock();
        if state.ended.remove(&id) {
            return true;
        }
        let Some(entry) = state.take(id) else { return false };
        drop(state);
        entry.handle.cancel();
        true
    }

    /// Ends all.
    pub(super) fn remove_all(&self) {
        let watches = std::mem::take(&mut self.state.lock().watches);
        for entry in watches.values() {
            entry.handle.cancel();
        }
    }

    /// Sends what is of no watch's events.
    pub(super) async fn send(&self, answer: pb::WatchResponse) -> Goes {
        match self.to.send(told(answer)).await {
            Ok(()) => Goes::On,
            Err(_) => Goes::Over,
        }
    }

    /// Sends events of a watch, up to `revision`; `whole` if nothing of that revision is left.
    pub(super) async fn send_events(
        &self,
        id: i64,
        (revision, whole): (u64, bool),
        answer: Answer,
    ) -> Goes {
        // One that is larger than all there is goes alone.
        let share =
            u32::try_from(answer.bytes()).map_or(ANSWER_BYTES, |bytes| bytes.min(ANSWER_BYTES));
        let share = tokio::select! {
            share = Arc::clone(&self.bytes).acquire_many_owned(share) => share.ok(),
            () = self.to.closed() => return Goes::Over,
        };
        let Ok(place) = self.to.reserve().await else { return Goes::Over };
        {
            let mut state = self.state.lock();
            let State { watches, last_event, .. } = &mut *state;
            let Some(entry) = watches.get_mut(&id) else { return Goes::Over };
            *last_event = (*last_event).max(revision);
            if whole {
                entry.position = revision;
            }
            place.send(Told { answer, _bytes: share });
        }
        self.offer_progress().await
    }

    /// Notes that a watch has nothing to tell up to a revision. `own` makes the answer to its own wish to be told so:
    /// as in etcd, none comes before the revision from which it was asked to tell.
    pub(super) async fn progress_of(
        &self,
        id: i64,
        revision: u64,
        own: impl FnOnce() -> Option<pb::WatchResponse>,
    ) -> Goes {
        let Ok(place) = self.to.reserve().await else { return Goes::Over };
        {
            let mut state = self.state.lock();
            let Some(entry) = state.watches.get_mut(&id) else { return Goes::Over };
            entry.position = entry.position.max(revision);
            let (asked, begun) = (std::mem::take(&mut entry.asked), revision >= entry.starts);
            state.asked -= usize::from(asked);
            if !asked
                && begun
                && let Some(answer) = own()
            {
                place.send(told(answer));
            }
        }
        self.offer_progress().await
    }

    /// Asks for a notice of progress for the whole stream, of at least this revision. As in etcd, none comes while there
    /// is no watch, or one that begins later.
    pub(super) async fn want_progress(&self, revision: u64) -> Goes {
        {
            let mut state = self.state.lock();
            let begins_later = |entry: &Entry| entry.starts > revision;
            if state.watches.is_empty() || state.watches.values().any(begins_later) {
                return Goes::On;
            }
            state.wanted = Some(state.wanted.unwrap_or(0).max(revision));
        }
        self.offer_progress().await
    }

    /// Sends a notice of progress if one is wanted and may be sent: to be called when a watch has gone on or is gone.
    pub(super) async fn offer_progress(&self) -> Goes {
        if self.state.lock().wanted.is_none() {
            return Goes::On;
        }
        let Ok(place) = self.to.reserve().await else { return Goes::Over };
        let mut state = self.state.lock();
        if let Some(revision) = state.progress() {
            let revision = i64::try_from(revision).unwrap_or(i64::MAX);
            let header = Some(pb::ResponseHeader { revision, ..self.head });
            let answer = pb::WatchResponse { header, watch_id: NO_WATCH, ..Default::default() };
            place.send(told(answer));
        }
        Goes::On
    }
}
