//! The service Maintenance: state, hashes, alarms, snapshots.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use annals::At;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::VERSION;
use crate::alarm::bytes_of;
use crate::answers::signed;
use crate::errors::{BAD_TRANSFEREE, COMPACTED, NO_SPACE, TOO_MANY_REQUESTS, refuse, status};
use crate::proto::etcdserverpb as pb;
use crate::server::Server;
use crate::snapshot::{self, Database, Extras};

/// The service.
#[derive(Debug)]
pub(crate) struct Maintenance(pub(crate) Arc<Server>);

/// Parts of a snapshot that wait for a client which reads slowly.
const SNAPSHOT_PARTS: usize = 4;

/// Parts that are read from the file at once.
const PARTS_TOGETHER: usize = 8;

/// A client that takes nothing for so long does not get the rest: others wait for its place.
const STALLED: Duration = Duration::from_secs(300);

type Part = Result<pb::SnapshotResponse, Status>;

/// Runs what reads or writes the file, and tells what came of it.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> snapshot::Result<T> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Status::unavailable(format!("annals: {error}")))?.map_err(|error| {
        crate::warn!("a snapshot was not sent", "error" = error.to_string());
        match error {
            snapshot::Error::Store(error) => status(&error),
            error if error.is_no_space() => refuse(NO_SPACE),
            error => Status::unavailable(format!("annals: {error}")),
        }
    })
}

/// Prefixes that a line of the log names.
const NAMED_MAX: usize = 8;

/// Says which history is not in a snapshot, though the store has it.
fn warn_of_left_out(server: &Server, since: u64) {
    let Some(left_out) = snapshot::left_out(&server.store, since) else { return };
    let shown = |prefix: &[u8]| String::from_utf8_lossy(prefix).into_owned();
    let because_of = left_out.because_of.iter().take(NAMED_MAX);
    let because_of: Vec<_> = because_of.map(|prefix| shown(prefix)).collect();
    let keys = left_out.keys.iter().take(NAMED_MAX).map(|(prefix, floor)| match prefix {
        Some(prefix) => format!("{} from revision {floor}", shown(prefix)),
        None => format!("other keys from revision {floor}"),
    });
    crate::warn!(
        "a snapshot begins at the revision where all keys can be read; what some have from before it is left out",
        "revision" = since,
        "because-of-the-rules-of" = because_of,
        "can-be-read" = keys.collect::<Vec<_>>(),
    );
}

/// Makes the database, and sends it. Nobody listens any more: that is no error. No thread waits for the client.
async fn send_snapshot(
    server: Arc<Server>,
    extras: Extras,
    to: &mpsc::Sender<Part>,
) -> Result<(), Status> {
    let made = move || {
        let database = Database::make(&server.store, &server.options.temporary_dir, &extras)?;
        warn_of_left_out(&server, database.summary().compacted);
        let header = server.header(database.summary().revision);
        Ok((header, database.into_blobs()))
    };
    let (header, mut blobs) = blocking(made).await?;
    loop {
        let (rest, parts) = blocking(move || {
            let parts = blobs.by_ref().take(PARTS_TOGETHER).collect::<Result<Vec<_>, _>>();
            let unreadable = |error| annals_etcd_files::Error::Io { offset: 0, error };
            Ok((blobs, parts.map_err(unreadable)?))
        })
        .await?;
        if parts.is_empty() {
            return Ok(());
        }
        blobs = rest;
        for part in parts {
            let part = Ok(pb::SnapshotResponse { header, ..part });
            match timeout(STALLED, to.send(part)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Ok(()),
                Err(_) => {
                    return Err(Status::deadline_exceeded(
                        "annals-etcd: nobody reads the snapshot",
                    ));
                }
            }
        }
    }
}

/// What comes of a snapshot. Dropped before its end, it ends the work on the rest.
struct Parts {
    sent: ReceiverStream<Part>,
    stop: Arc<AtomicBool>,
    /// Why there are no more.
    failed: oneshot::Receiver<Status>,
}

impl Stream for Parts {
    type Item = Part;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match Pin::new(&mut self.sent).poll_next(context) {
            // It is told before the parts end, and but once.
            Poll::Ready(None) => Poll::Ready(self.failed.try_recv().ok().map(Err)),
            part => part,
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // Relaxed: nothing else is told by it.
        self.stop.store(true, Ordering::Relaxed);
    }
}

type Answer<T> = Result<Response<T>, Status>;

impl Maintenance {
    /// Changes what is kept of alarms, which waits for the disk.
    async fn change_alarms(
        &self,
        change: impl FnOnce(&Server) -> bool + Send + 'static,
    ) -> Result<bool, Status> {
        let server = Arc::clone(&self.0);
        let changed = tokio::task::spawn_blocking(move || change(&server)).await;
        changed.map_err(|error| Status::unavailable(format!("annals: {error}")))
    }
}

#[tonic::async_trait]
impl pb::maintenance_server::Maintenance for Maintenance {
    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Answer<pb::AlarmResponse> {
        use pb::alarm_request::AlarmAction;
        let caller = self.0.caller(&request)?;
        if request.get_ref().action == i32::from(AlarmAction::Get) {
            caller.must_be_known()?;
        } else {
            caller.must_be_admin()?;
        }
        let request = request.into_inner();
        let alarm = pb::AlarmType::try_from(request.alarm).unwrap_or(pb::AlarmType::None);
        let (member_id, own) = (request.member_id, self.0.member.id);
        let told = pb::AlarmMember { member_id, alarm: alarm.into() };
        let alarms = match AlarmAction::try_from(request.action) {
            Ok(AlarmAction::Get) => {
                let mut all = self.0.alarms.members(own);
                all.retain(|each| alarm == pb::AlarmType::None || each.alarm == told.alarm);
                all
            }
            Ok(AlarmAction::Activate) => {
                let raise = move |server: &Server| server.alarms.raise(member_id, alarm);
                if alarm != pb::AlarmType::None && !self.change_alarms(raise).await? {
                    return Err(refuse(TOO_MANY_REQUESTS));
                }
                vec![told]
            }
            Ok(AlarmAction::Deactivate) => {
                // One that is not raised is not taken back.
                let disarm =
                    move |server: &Server| server.alarms.disarm(member_id, alarm, member_id == own);
                let was = self.change_alarms(disarm).await?;
                if was { vec![told] } else { Vec::new() }
            }
            Err(_) => return Err(Status::invalid_argument("etcdserver: unknown alarm action")),
        };
        Ok(Response::new(pb::AlarmResponse { header: self.0.header_now(), alarms }))
    }

    async fn status(&self, request: Request<pb::StatusRequest>) -> Answer<pb::StatusResponse> {
        self.0.caller(&request)?.must_be_known()?;
        let server = &self.0;
        let stats = server.store.stats();
        let bytes = bytes_of(&stats);
        let errors = server.alarms.members(server.member.id).into_iter().map(|alarm| {
            format!("memberID:{} alarm:{} ", alarm.member_id, alarm.alarm().as_str_name())
        });
        Ok(Response::new(pb::StatusResponse {
            header: server.header(stats.revision),
            version: VERSION.to_owned(),
            db_size: signed(bytes),
            leader: server.member.id,
            // Nothing counts what a log of raft would have; what stands for it grows with each change.
            raft_index: stats.revision,
            raft_term: server.member.term,
            raft_applied_index: stats.revision,
            errors: errors.collect(),
            db_size_in_use: signed(bytes.saturating_sub(stats.dead_bytes)),
            is_learner: false,
            storage_version: "3.6.0".to_owned(),
            db_size_quota: signed(server.alarms.quota()),
            downgrade_info: Some(pb::DowngradeInfo::default()),
        }))
    }

    /// Reorganises a store that has come to its quota or has the alarm NOSPACE. Else it does nothing: background work gives
    /// room back.
    async fn defragment(
        &self,
        request: Request<pb::DefragmentRequest>,
    ) -> Answer<pb::DefragmentResponse> {
        self.0.caller(&request)?.must_be_admin()?;
        crate::log::warn(
            "defragment is not needed: background work gives room back; a store at its quota is reorganised now",
            &[],
        );
        self.0.make_room().await.map_err(|error| status(&error))?;
        // As etcd's, without a header, which clients check.
        Ok(Response::new(pb::DefragmentResponse { header: None }))
    }

    /// The hash of keys and values as of now. etcd hashes its whole file, which no two members share either.
    async fn hash(&self, request: Request<pb::HashRequest>) -> Answer<pb::HashResponse> {
        self.0.caller(&request)?.must_be_admin()?;
        let hash = self.0.blocking(|store| store.hash_at(At::Latest)).await?;
        let header = self.0.header(hash.revision);
        Ok(Response::new(pb::HashResponse { header, hash: hash.hash }))
    }

    async fn hash_kv(&self, request: Request<pb::HashKvRequest>) -> Answer<pb::HashKvResponse> {
        self.0.caller(&request)?.must_be_admin()?;
        let at = match u64::try_from(request.get_ref().revision) {
            Ok(0) => At::Latest,
            Ok(revision) => At::Revision(revision),
            Err(_) => return Err(refuse(COMPACTED)),
        };
        let hash = self.0.blocking(move |store| store.hash_at(at)).await?;
        Ok(Response::new(pb::HashKvResponse {
            header: self.0.header_now(),
            hash: hash.hash,
            // etcd's -1: nothing was ever compacted.
            compact_revision: if hash.compacted == 0 { -1 } else { signed(hash.compacted) },
            hash_revision: signed(hash.revision),
        }))
    }

    type SnapshotStream = Pin<Box<dyn Stream<Item = Result<pb::SnapshotResponse, Status>> + Send>>;

    async fn snapshot(
        &self,
        request: Request<pb::SnapshotRequest>,
    ) -> Answer<Self::SnapshotStream> {
        self.0.caller(&request)?.must_be_admin()?;
        let server = Arc::clone(&self.0);
        let place = Arc::clone(&server.snapshots).try_acquire_owned();
        let Ok(place) = place else { return Err(refuse(TOO_MANY_REQUESTS)) };
        let (to, parts) = mpsc::channel(SNAPSHOT_PARTS);
        let (fail, failed) = oneshot::channel();
        let extras = Extras {
            auth: Some(server.auth.snapshot()),
            alarms: server.alarms.members(server.member.id),
            term: server.member.term,
            ..Extras::default()
        };
        let stop = Arc::clone(&extras.stop);
        tokio::spawn(async move {
            if let Err(status) = send_snapshot(server, extras, &to).await {
                let _ = fail.send(status);
            }
            drop((to, place));
        });
        Ok(Response::new(Box::pin(Parts { sent: ReceiverStream::new(parts), stop, failed })))
    }

    async fn move_leader(
        &self,
        request: Request<pb::MoveLeaderRequest>,
    ) -> Answer<pb::MoveLeaderResponse> {
        self.0.caller(&request)?.must_be_admin()?;
        if request.get_ref().target_id == self.0.member.id {
            return Ok(Response::new(pb::MoveLeaderResponse { header: None }));
        }
        Err(refuse(BAD_TRANSFEREE))
    }

    async fn downgrade(
        &self,
        request: Request<pb::DowngradeRequest>,
    ) -> Answer<pb::DowngradeResponse> {
        self.0.caller(&request)?.must_be_admin()?;
        Err(Status::unimplemented("annals-etcd: there is no other version of the files to go to"))
    }
}
