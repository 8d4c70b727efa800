//! Eight clients that commit at once, each in its way, and a journal of what they were told.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use annals::clock::ManualClock;
use annals::vfs::{CrashMode, MemoryVfs};
use annals::{ErrorKind, Op, Outcome, Store, Ticket, TxnRequest, View, put, txn};

use super::random::Random;
use super::tasks::block_on;
use super::{DIRECTORY, START_TIME, tiny};

/// How many there are.
pub const CLIENTS: u64 = 8;

/// Commits of each.
const ROUNDS: u64 = 12;

/// The keys and values of a transaction. No two transactions are equal.
type Content = BTreeMap<String, String>;

/// What a client was told of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is durable.
    Acknowledged { revision: u64 },
    /// It was ordered; whether it is durable is not known.
    Unknown { revision: u64 },
    /// Its ticket was dropped.
    Dropped { revision: u64 },
    /// It has had no effect, because the store has failed.
    Refused,
    /// It has had no effect, because a file could not be read. That is no failure of the store.
    Unread,
    /// It has had no effect, because memory is full and the disk has no space for the flush. Nor is that.
    NoRoom,
}

impl Ended {
    fn revision(self) -> Option<u64> {
        match self {
            Self::Acknowledged { revision }
            | Self::Unknown { revision }
            | Self::Dropped { revision } => Some(revision),
            Self::Refused | Self::Unread | Self::NoRoom => None,
        }
    }
}

/// What became of all commits.
#[derive(Debug, Default)]
pub struct Journal {
    commits: Mutex<Vec<(Content, Ended)>>,
    /// Set once a client has been told of a failure: whatever begins after that must fail.
    failed: AtomicBool,
}

impl Journal {
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    pub fn count(&self, which: fn(&Ended) -> bool) -> u64 {
        self.commits.lock().unwrap().iter().filter(|(_, ended)| which(ended)).count() as u64
    }

    /// Notes how a commit ended that began when the store had failed already, or had not.
    fn note(&self, content: Content, ended: Ended, after_failure: bool) {
        if after_failure {
            assert!(ended.revision().is_none(), "{ended:?}, begun after the failure: {content:?}");
        }
        if matches!(ended, Ended::Unknown { .. } | Ended::Refused) {
            self.failed.store(true, Ordering::SeqCst);
        }
        self.commits.lock().unwrap().push((content, ended));
    }

    /// The ordered commits by revision; two have never the same one.
    fn by_revision(&self) -> BTreeMap<u64, Content> {
        let mut found = BTreeMap::new();
        for (content, ended) in &*self.commits.lock().unwrap() {
            if let Some(revision) = ended.revision() {
                let other = found.insert(revision, content.clone());
                assert_eq!(other, None, "revision {revision} was given twice");
            }
        }
        found
    }

    /// Whatever was acknowledged is durable, and what is durable is not called unknown.
    pub fn check_outcomes(&self, durable: u64) {
        for (content, ended) in &*self.commits.lock().unwrap() {
            match *ended {
                Ended::Acknowledged { revision } => assert!(revision <= durable, "{content:?}"),
                Ended::Unknown { revision } => assert!(revision > durable, "{content:?}"),
                Ended::Dropped { .. } | Ended::Refused | Ended::Unread | Ended::NoRoom => {}
            }
        }
    }

    /// Whether commits were ordered behind `revision`, and the tickets of all of these dropped.
    pub fn is_forgotten_behind(&self, revision: u64) -> bool {
        let commits = self.commits.lock().unwrap();
        let ended = commits.iter().map(|(_, ended)| ended);
        let behind: Vec<_> = ended.filter(|ended| ended.revision() > Some(revision)).collect();
        !behind.is_empty() && behind.iter().all(|ended| matches!(ended, Ended::Dropped { .. }))
    }

    /// A view at `revision` shows all of the order up to there, and nothing else.
    pub fn check_state(&self, view: &View, revision: u64) {
        assert_eq!(view.revision(), revision);
        let order = self.by_revision();
        assert!(order.keys().copied().take_while(|at| *at <= revision).eq(2..=revision), "dense");
        let mut expected = Content::new();
        for content in order.range(..=revision).map(|(_, content)| content) {
            expected.extend(content.clone());
        }
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let shown: Content = view
            .range(..)
            .map(|kv| kv.map(|kv| (text(&kv.key), text(&kv.value))).unwrap())
            .collect();
        assert_eq!(shown, expected, "the state at {revision}");
    }

    /// A store opened from this disk has a dense prefix of the order, with whole transactions, and
    /// all that was acknowledged; and it goes on from there.
    pub fn check_reopened(&self, image: &MemoryVfs) {
        let clock = Arc::new(ManualClock::new(START_TIME));
        let store = tiny(Arc::new(image.clone()), clock).open(Path::new(DIRECTORY)).unwrap();
        let last = store.revision();
        for (content, ended) in &*self.commits.lock().unwrap() {
            if let Ended::Acknowledged { revision } = *ended {
                assert!(revision <= last, "{content:?} was acknowledged and is not in {last}");
            }
        }
        let order = self.by_revision();
        let mut next = 2;
        for transaction in store.log(..).with_values() {
            let transaction = transaction.unwrap();
            assert_eq!(transaction.revision, next, "dense");
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let changes = transaction.changes.iter();
            let content: Content =
                changes.map(|c| (text(&c.key), text(c.value.as_ref().unwrap()))).collect();
            assert_eq!(Some(&content), order.get(&next), "revision {next}, whole");
            next += 1;
        }
        assert_eq!(next, last + 1, "the log ends with the last revision");
        self.check_state(&store.latest().unwrap(), last);
        assert_eq!(store.put("after", "the failure").unwrap().revision, last + 1);
        store.close().unwrap();
    }
}

/// What a power cut now could leave: nothing of what was not synced, all of it, or any sectors.
pub fn images(disk: &MemoryVfs, seed: u64) -> Vec<(&'static str, MemoryVfs)> {
    let random = |n: u64| disk.crash(seed * 31 + n, CrashMode::Random);
    vec![
        ("dropped", disk.crash(0, CrashMode::LoseAll)),
        ("kept", disk.crash(0, CrashMode::KeepAll)),
        ("torn", random(1)),
        ("torn otherwise", random(2)),
    ]
}

/// Every way to write is refused, without effect.
pub fn refuses_writes(store: &Store) {
    let poisoned = |kind: ErrorKind| {
        assert!(matches!(kind, ErrorKind::Poisoned { .. }), "{kind:?}");
    };
    poisoned(store.put("refused", "").unwrap_err().into_kind());
    poisoned(store.submit(txn().then([put("refused", "")])).unwrap_err().into_kind());
    poisoned(store.compact(store.revision()).unwrap_err().into_kind());
}

/// Lets all clients commit, and notes how each commit ended.
pub fn run(store: &Store, journal: &Journal, seed: u64) {
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let random = Random::new(seed * CLIENTS + number);
            scope.spawn(move || Client { store, journal, number, random }.run());
        }
    });
}

struct Client<'a> {
    store: &'a Store,
    journal: &'a Journal,
    number: u64,
    random: Random,
}

impl Client<'_> {
    fn run(&mut self) {
        let mut round = 0;
        while round < ROUNDS {
            round += match self.number % 3 {
                0 => self.block(round),
                1 => self.window(round, Ticket::wait),
                _ => self.window(round, block_on),
            };
        }
    }

    /// Keys of its own, one that all write, and sizes up to a few sectors.
    fn content(&mut self, round: u64) -> Content {
        let client = self.number;
        let (first, second) = (self.random.index(600), self.random.index(60));
        Content::from([
            (format!("{client}/{round}/a"), format!("a{round}").repeat(first)),
            (format!("{client}/{round}/b"), format!("b{round}").repeat(second)),
            ("shared".to_owned(), format!("{client}/{round}")),
        ])
    }

    fn block(&mut self, round: u64) -> u64 {
        let content = self.content(round);
        let after = self.journal.has_failed();
        let told = self.store.transact(request(&content)).map(|answer| answer.revision);
        self.journal.note(content, ended(told), after);
        1
    }

    /// Submits a few, and waits for them in order; one of them now and then it forgets.
    fn window(
        &mut self,
        round: u64,
        wait: fn(Ticket) -> annals::Result<annals::TxnResponse>,
    ) -> u64 {
        let count = self.random.between(1, 5).min(ROUNDS - round);
        let mut window = Vec::new();
        for round in round..round + count {
            let content = self.content(round);
            let after = self.journal.has_failed();
            match self.store.submit(request(&content)) {
                Ok(ticket) => {
                    let Outcome::Committed { revision } = ticket.outcome() else {
                        panic!("{:?}", ticket.outcome());
                    };
                    window.push((content, ticket, revision, after));
                }
                Err(error) => self.journal.note(content, ended(Err(error)), after),
            }
        }
        for (content, ticket, revision, after) in window {
            let ended = if self.random.one_in(8) {
                drop(ticket);
                Ended::Dropped { revision }
            } else {
                let ended = ended(wait(ticket).map(|answer| answer.revision));
                assert_eq!(ended.revision(), Some(revision), "what was ordered is not refused");
                ended
            };
            self.journal.note(content, ended, after);
        }
        count
    }
}

fn request(content: &Content) -> TxnRequest {
    txn().then(content.iter().map(|(key, value)| put(key, value)).collect::<Vec<Op>>())
}

/// What an answer means.
pub fn ended(told: annals::Result<u64>) -> Ended {
    match told.map_err(annals::Error::into_kind) {
        Ok(revision) => Ended::Acknowledged { revision },
        Err(ErrorKind::OutcomeUnknown { revision, .. }) => Ended::Unknown { revision },
        Err(ErrorKind::Poisoned { .. }) => Ended::Refused,
        Err(ErrorKind::Io { .. }) => Ended::Unread,
        Err(ErrorKind::NoSpace { .. }) => Ended::NoRoom,
        Err(other) => panic!("not an answer to a commit: {other:?}"),
    }
}
