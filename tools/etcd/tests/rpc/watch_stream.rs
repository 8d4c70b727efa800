//! One stream of watches as its client sees it: what each watch tells, and what no server may ever send.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use annals_etcd::proto::etcdserverpb as pb;
use annals_etcd::proto::mvccpb::Event;
use pb::watch_request::RequestUnion;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

use crate::support::Clients;

/// What an answer with the flag `fragment` may have: a request's bytes and as many as etcd allows beside them.
const FRAGMENT: usize = 1_572_864 + (512 << 10);

/// What one watch has told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) events: Vec<Event>,
    request: pb::WatchCreateRequest,
    /// All up to this revision has been told: so said a notice of progress.
    promised: i64,
    /// Whether its last answer was a part of one.
    in_part: bool,
}

/// A stream, and all that came over it.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) name: String,
    to: mpsc::Sender<pb::WatchRequest>,
    answers: mpsc::UnboundedReceiver<pb::WatchResponse>,
    /// The watches by the order in which they were made, also those that are over.
    pub(crate) told: Vec<Told>,
    by_id: HashMap<i64, usize>,
    creating: pb::WatchCreateRequest,
    controls: VecDeque<pb::WatchResponse>,
    /// Notices of progress for the whole stream, and the newest revision of one.
    pub(crate) notices: usize,
    pub(crate) promised: i64,
    /// Answers that were parts, and watches' own notices.
    pub(crate) parts: usize,
    pub(crate) own_notices: usize,
}

fn request(union: RequestUnion) -> pb::WatchRequest {
    pb::WatchRequest { request_union: Some(union) }
}

fn revision(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}

impl Listener {
    pub(crate) fn open(clients: &Clients, name: String) -> Self {
        let (to, requests) = mpsc::channel(4);
        let (filed, answers) = mpsc::unbounded_channel();
        let mut watch = clients.watch.clone();
        // A real one answers the call itself with its first answer only.
        tokio::spawn(async move {
            let stream = watch.watch(ReceiverStream::new(requests)).await.expect("a stream");
            let mut stream = stream.into_inner();
            while let Ok(Some(answer)) = stream.message().await {
                if filed.send(answer).is_err() {
                    return;
                }
            }
        });
        Self {
            name,
            to,
            answers,
            told: Vec::new(),
            by_id: HashMap::new(),
            creating: pb::WatchCreateRequest::default(),
            controls: VecDeque::new(),
            notices: 0,
            promised: 0,
            parts: 0,
            own_notices: 0,
        }
    }

    /// Makes a watch, and gives the answer.
    pub(crate) async fn create(&mut self, create: pb::WatchCreateRequest) -> pb::WatchResponse {
        self.creating.clone_from(&create);
        self.send(RequestUnion::CreateRequest(create)).await;
        self.control().await
    }

    pub(crate) async fn cancel(&mut self, watch_id: i64) {
        self.send(RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id })).await;
    }

    pub(crate) async fn ask_progress(&mut self) {
        self.send(RequestUnion::ProgressRequest(pb::WatchProgressRequest {})).await;
    }

    async fn send(&mut self, union: RequestUnion) {
        self.to.send(request(union)).await.expect("the stream is open");
    }

    /// The next answer to a request for a watch or for its end.
    pub(crate) async fn control(&mut self) -> pb::WatchResponse {
        self.until("answer to a request", |this| this.controls.pop_front()).await
    }

    /// Answers to requests that nobody has asked for yet.
    pub(crate) fn controls_left(&self) -> usize {
        self.controls.len()
    }

    /// Waits until a watch has told so many events.
    pub(crate) async fn events(&mut self, watch: usize, count: usize) {
        let what = format!("event {count} of watch {watch}");
        self.until(&what, |this| (this.told[watch].events.len() >= count).then_some(())).await;
    }

    /// Waits until a watch has told an event of a revision.
    pub(crate) async fn reaches(&mut self, watch: usize, upto: i64) {
        let last = |this: &mut Self| this.told[watch].events.last().map_or(0, revision);
        let what = format!("revision {upto} of watch {watch}");
        self.until(&what, |this| (last(this) >= upto).then_some(())).await;
    }

    /// Waits until so many notices of progress of the stream have come.
    pub(crate) async fn progress(&mut self, count: usize) {
        self.until("notice of progress", |this| (this.notices >= count).then_some(())).await;
    }

    /// Files what comes until there is what is waited for: notices of progress come for ever.
    async fn until<T>(&mut self, what: &str, mut found: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            let answer = tokio::time::timeout_at(end, self.answers.recv()).await;
            let Ok(Some(answer)) = answer else { panic!("{}: no {what} comes", self.name) };
            self.file(answer);
        }
    }

    fn file(&mut self, mut answer: pb::WatchResponse) {
        let bytes = answer.encoded_len();
        let head = answer.header.expect("a head");
        answer.header = Some(pb::ResponseHeader { revision: head.revision, ..Default::default() });
        let (id, name) = (answer.watch_id, &self.name);
        if answer.created || answer.canceled {
            assert!(answer.events.is_empty(), "{name}: {answer:?}");
            if answer.created && !answer.canceled {
                let request = self.creating.clone();
                self.by_id.insert(id, self.told.len());
                self.told.push(Told { request, ..Told::default() });
            } else if !answer.created {
                self.by_id.remove(&id);
            }
            self.controls.push_back(answer);
            return;
        }
        if id == -1 && answer.events.is_empty() {
            assert!(head.revision >= self.promised, "{name}: progress goes back: {answer:?}");
            (self.promised, self.notices) = (head.revision, self.notices + 1);
            for watch in self.by_id.values() {
                self.told[*watch].promised = head.revision;
            }
            return;
        }
        let Some(watch) = self.by_id.get(&id) else { panic!("{name}: of no watch: {answer:?}") };
        let told = &mut self.told[*watch];
        let last = told.events.last().map_or(0, revision);
        let Some(newest) = answer.events.last().map(revision) else {
            assert!(told.request.progress_notify, "{name}: a notice nobody asked for: {answer:?}");
            assert!(head.revision >= last && !told.in_part, "{name}: {answer:?}");
            told.promised = head.revision;
            self.own_notices += 1;
            return;
        };
        assert!(head.revision >= newest, "{name}: of the future: {answer:?}");
        let (wanted, part) = (told.request.fragment, answer.fragment);
        assert!(wanted || !part, "{name}: a part nobody asked for");
        assert!(!wanted || bytes < FRAGMENT || answer.events.len() == 1, "{name}: {bytes} bytes");
        let mut before = if told.in_part { last - 1 } else { last };
        before = before.max(told.promised);
        let first = revision(&answer.events[0]);
        assert!(first > before, "{name}, watch {id}: {first} comes after all up to {before}");
        assert!(answer.events.is_sorted_by_key(revision), "{name}: not in order: {answer:?}");
        told.in_part = part;
        self.parts += usize::from(part);
        told.events.append(&mut answer.events);
    }
}
