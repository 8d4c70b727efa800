//! One watch stream for all watches of a client: a task that brings each what is its own.
//!
//! Invariants:
//! 1. `next` of a watch is the revision from which it has got nothing; a revision is brought whole. So a stream that breaks is
//!    begun anew at `next`, and nothing is told twice or left out, whatever the new one sends again.
//! 2. A watch has a new number on the stream each time: a late answer to the old one is nobody's.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::Status;

use super::client::Client;
use super::convert::{revision, signed, unsigned};
use super::failure::{Asked, Verdict, io_error, judge};
use super::stream;
use super::watch::{EtcdWatch, Shared};
use super::wire::{
    Event, WatchCall, WatchCancel, WatchCreate, WatchProgress, WatchRequest, WatchResponse,
};
use super::{EtcdKv, bounds};
use crate::error::ErrorKind;
use crate::kv::KeyRange;
use crate::object::kv::{self, Changes};
use crate::sync::plain::{AtomicU64, Ordering};

/// Between two streams; twice as long after each that has brought nothing.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Opening a stream may take so long.
const OPEN_TIME: Duration = Duration::from_secs(10);
/// Progress is not asked for more often.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Of all watches, in an answer.
const ALL: i64 = -1;

/// What the watches tell the task.
pub(super) enum Command {
    Add(Arc<Shared>, Wanted),
    /// There is room again.
    Resume(u64),
    Cancel(u64),
}

/// What a watch is to tell.
pub(super) struct Wanted {
    key: Bytes,
    range_end: Bytes,
    from: u64,
    progress_every: Option<Duration>,
}

/// The way to the task.
pub(super) struct Hub {
    commands: UnboundedSender<Command>,
    numbers: AtomicU64,
}

impl Hub {
    /// To be called in a runtime, in which the task will live.
    pub(super) fn start(client: Arc<Client>) -> Self {
        let (commands, received) = unbounded_channel();
        let task = Task {
            client,
            watches: HashMap::new(),
            on_stream: HashMap::new(),
            being_made: VecDeque::new(),
            last_id: 0,
            tells_progress: None,
            asked: Instant::now(),
        };
        tokio::spawn(task.run(received));
        Self { commands, numbers: AtomicU64::new(0) }
    }

    pub(super) fn watch(&self, kv: EtcdKv, request: &kv::WatchRequest<'_>) -> EtcdWatch {
        let keys = &kv.core.client.keys;
        let (key, range_end) = if request.is_prefix {
            let (key, end) = bounds(&KeyRange::prefix(request.key));
            (keys.key(&key), keys.end(&end))
        } else {
            (keys.key(request.key), Bytes::new())
        };
        let (from, progress_every) = (request.from.max(1), request.progress_every);
        let shared = Shared::new(self.numbers.fetch_add(1, Ordering::Relaxed));
        let wanted = Wanted { key, range_end, from, progress_every };
        if self.commands.send(Command::Add(Arc::clone(&shared), wanted)).is_err() {
            shared.end(None);
        }
        EtcdWatch { shared, commands: self.commands.clone(), _kv: kv }
    }
}

/// A watch as the task knows it.
struct Entry {
    shared: Arc<Shared>,
    wanted: Wanted,
    /// The first revision that it has not got.
    next: u64,
    /// When it got something.
    told: Instant,
    /// Its number on the stream; none where it is not on it.
    id: Option<i64>,
    is_made: bool,
}

/// Why a stream is not used any more.
enum End {
    /// Nobody watches.
    Idle,
    /// Nobody can any more.
    Closed,
    Broken(Status),
}

struct Task {
    client: Arc<Client>,
    watches: HashMap<u64, Entry>,
    /// Which watch has which number on the stream.
    on_stream: HashMap<i64, u64>,
    /// Numbers whose making has not been answered: etcd does that in order.
    being_made: VecDeque<i64>,
    last_id: i64,
    tells_progress: Option<bool>,
    /// When progress was asked for.
    asked: Instant,
}

impl Task {
    async fn run(mut self, mut commands: UnboundedReceiver<Command>) {
        let mut pause = PAUSE;
        loop {
            if self.watches.is_empty() {
                let Some(command) = commands.recv().await else { return };
                self.obey(command, None);
                continue;
            }
            let (at, mut has_heard) = (self.client.member().0, false);
            match self.session(at, &mut commands, &mut has_heard).await {
                End::Idle => continue,
                End::Closed => return,
                End::Broken(status) => match judge(&status) {
                    Verdict::Refused => self.end_all(&status),
                    Verdict::Authenticate => self.client.forget_token(),
                    Verdict::Again | Verdict::Unknown => self.client.leave(at),
                },
            }
            pause = if has_heard { PAUSE } else { (pause * 2).min(PAUSE_MAX) };
            sleep(pause).await;
        }
    }

    /// What etcd says of all watches, and will say again.
    fn end_all(&mut self, status: &Status) {
        let asked = Asked::reading("watch");
        let error = asked.error(self.client.member().1, status);
        for (_, entry) in self.watches.drain() {
            entry.shared.end(Some(error.clone()));
        }
    }

    /// One stream, as long as it lasts.
    async fn session(
        &mut self,
        at: usize,
        commands: &mut UnboundedReceiver<Command>,
        has_heard: &mut bool,
    ) -> End {
        let (ask, requests) = unbounded_channel();
        self.on_stream.clear();
        self.being_made.clear();
        self.tells_progress = None;
        let numbers: Vec<u64> =
            self.watches.iter().filter(|(_, it)| it.id.is_some()).map(|(n, _)| *n).collect();
        for number in numbers {
            self.make(number, Some(&ask));
        }
        if self.on_stream.is_empty() {
            // All of them wait for somebody to take what they have got.
            let Some(command) = commands.recv().await else { return End::Closed };
            self.obey(command, None);
            return End::Idle;
        }
        let mut answers = match timeout(OPEN_TIME, stream::open(&self.client, at, requests)).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(status)) => return End::Broken(status),
            Err(_) => return End::Broken(Status::deadline_exceeded("the stream does not open")),
        };
        loop {
            let due = self.due();
            tokio::select! {
                command = commands.recv() => {
                    let Some(command) = command else { return End::Closed };
                    self.obey(command, Some(&ask));
                    if self.watches.is_empty() {
                        return End::Idle;
                    }
                }
                answer = answers.message() => match answer {
                    Ok(Some(answer)) => {
                        *has_heard = true;
                        if let Err(status) = self.hear(answer, &ask) {
                            return End::Broken(status);
                        }
                    }
                    Ok(None) => return End::Broken(Status::unavailable("the stream has ended")),
                    Err(status) => return End::Broken(status),
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.ask_progress(&ask).await;
                }
            }
        }
    }

    fn obey(&mut self, command: Command, ask: Option<&UnboundedSender<WatchRequest>>) {
        match command {
            Command::Add(shared, wanted) => {
                let (number, next) = (shared.number, wanted.from);
                let told = Instant::now();
                let entry = Entry { shared, wanted, next, told, id: None, is_made: false };
                self.watches.insert(number, entry);
                self.make(number, ask);
            }
            Command::Resume(number) => {
                if self.watches.get(&number).is_some_and(|entry| entry.id.is_none()) {
                    self.make(number, ask);
                }
            }
            Command::Cancel(number) => {
                if let Some(entry) = self.watches.remove(&number) {
                    entry.shared.end(None);
                    self.leave_stream(entry.id, ask);
                }
            }
        }
    }

    /// Puts a watch on the stream, behind what it has got.
    fn make(&mut self, number: u64, ask: Option<&UnboundedSender<WatchRequest>>) {
        let Some(entry) = self.watches.get_mut(&number) else { return };
        self.last_id += 1;
        let watch_id = self.last_id;
        (entry.id, entry.is_made) = (Some(watch_id), false);
        let Some(ask) = ask else { return };
        self.on_stream.insert(watch_id, number);
        self.being_made.push_back(watch_id);
        let create = WatchCreate {
            key: entry.wanted.key.clone(),
            range_end: entry.wanted.range_end.clone(),
            start_revision: signed(entry.next),
            // Also for those who want none: a watch of what never changes then has not to begin where all is compacted.
            progress_notify: true,
            prev_kv: true,
            watch_id,
        };
        let _ = ask.send(WatchRequest { call: Some(WatchCall::Create(create)) });
    }

    fn leave_stream(&mut self, id: Option<i64>, ask: Option<&UnboundedSender<WatchRequest>>) {
        let Some(watch_id) = id else { return };
        if self.on_stream.remove(&watch_id).is_some()
            && let Some(ask) = ask
        {
            let cancel = WatchCancel { watch_id };
            let _ = ask.send(WatchRequest { call: Some(WatchCall::Cancel(cancel)) });
        }
    }

    /// What etcd has sent; an error where the stream is to be begun anew.
    fn hear(
        &mut self,
        answer: WatchResponse,
        ask: &UnboundedSender<WatchRequest>,
    ) -> Result<(), Status> {
        let mut id = answer.watch_id;
        if answer.created {
            let made = self.being_made.pop_front();
            // One that is refused has no number, or the one it was to have.
            if answer.canceled {
                id = made.unwrap_or(id);
            }
        }
        let current = revision(answer.header.as_ref());
        if id == ALL {
            self.all_told(current, ask);
            return Ok(());
        }
        let Some(number) = self.on_stream.get(&id).copied() else { return Ok(()) };
        let Some(entry) = self.watches.get_mut(&number) else { return Ok(()) };
        entry.is_made = true;
        if answer.canceled {
            return self.cancelled(number, &answer);
        }
        if answer.events.is_empty() {
            if !answer.created {
                self.progress(number, current, ask);
            }
            return Ok(());
        }
        let mut is_room = true;
        for changes in by_revision(&self.client, answer.events) {
            if changes.revision >= entry.next {
                entry.next = changes.revision + 1;
                entry.told = Instant::now();
                is_room &= entry.shared.push(changes);
            }
        }
        if !is_room {
            let id = entry.id.take();
            self.leave_stream(id, Some(ask));
        }
        Ok(())
    }

    /// Etcd has ended a watch.
    fn cancelled(&mut self, number: u64, answer: &WatchResponse) -> Result<(), Status> {
        let reason = answer.cancel_reason.as_str();
        if answer.compact_revision == 0 {
            if reason.contains("invalid auth token") {
                return Err(Status::unauthenticated(reason));
            }
            if reason.is_empty() || reason.contains("leader") || reason.contains("stopped") {
                return Err(Status::unavailable(reason));
            }
        }
        let Some(entry) = self.watches.remove(&number) else { return Ok(()) };
        self.on_stream.retain(|_, it| *it != number);
        let error = if answer.compact_revision == 0 {
            let kind = if reason.contains("permission denied") {
                io::ErrorKind::PermissionDenied
            } else {
                io::ErrorKind::Other
            };
            io_error("watch", self.client.member().1, kind, reason.to_owned())
        } else {
            let compacted = unsigned(answer.compact_revision);
            ErrorKind::Compacted { requested: entry.next, compacted, prefix: None }.into()
        };
        entry.shared.end(Some(error));
        Ok(())
    }

    /// When somebody is to be told of progress for which etcd has to be asked.
    fn due(&self) -> Option<Instant> {
        if self.tells_progress == Some(false) {
            return None;
        }
        let due = |entry: &Entry| Some(entry.told + entry.wanted.progress_every?);
        let made = self.watches.values().filter(|entry| entry.id.is_some() && entry.is_made);
        made.filter_map(due).min().map(|due| due.max(self.asked + ASK_EVERY))
    }

    async fn ask_progress(&mut self, ask: &UnboundedSender<WatchRequest>) {
        self.asked = Instant::now();
        if self.tells_progress.is_none() {
            self.tells_progress = Some(stream::tells_progress(&self.client).await);
        }
        if self.tells_progress == Some(true) {
            let _ = ask.send(WatchRequest { call: Some(WatchCall::Progress(WatchProgress {})) });
        }
    }

    /// Everything up to a revision has been sent to all watches.
    fn all_told(&mut self, current: u64, ask: &UnboundedSender<WatchRequest>) {
        // One that was not asked for, or by a server of which it is not known that it can.
        if self.tells_progress != Some(true) {
            return;
        }
        let numbers: Vec<u64> =
            self.watches.iter().filter(|(_, it)| it.is_made).map(|(n, _)| *n).collect();
        for number in numbers {
            self.progress(number, current, ask);
        }
    }

    /// Everything up to a revision has been sent to a watch.
    fn progress(&mut self, number: u64, current: u64, ask: &UnboundedSender<WatchRequest>) {
        let Some(entry) = self.watches.get_mut(&number) else { return };
        // It may begin in the future, and one that has left the stream has not got all.
        if current + 1 < entry.next || entry.id.is_none() {
            return;
        }
        entry.next = current + 1;
        let Some(every) = entry.wanted.progress_every else { return };
        if entry.told.elapsed() < every {
            return;
        }
        entry.told = Instant::now();
        if !entry.shared.push(Changes { revision: current, events: Vec::new() }) {
            let id = entry.id.take();
            self.leave_stream(id, Some(ask));
        }
    }
}

/// Etcd sends the changes of several revisions at once, each of them whole.
fn by_revision(client: &Client, events: Vec<Event>) -> Vec<Changes> {
    let mut all: Vec<Changes> = Vec::new();
    for event in events {
        let event = client.keys.event(event);
        let revision = event.kv.mod_revision;
        match all.last_mut() {
            Some(changes) if changes.revision == revision => changes.events.push(event),
            _ => all.push(Changes { revision, events: vec![event] }),
        }
    }
    all
}
