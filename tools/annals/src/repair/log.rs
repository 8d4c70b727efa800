//! What the log adds to what is in segments, damage or not.
//!
//! A frame has a checksum of its own and says which versions it made, so those behind damage are as true as those before. What
//! lies behind an end that the manifest records was dropped by a recovery, and does not count.

use annals::inspect::{StoreFiles, WalPart};
use annals_format::FileKind;
use annals_format::entry::EntryRef;
use annals_format::frame::{Frame, Op};
use annals_format::manifest::Manifest;
use annals_format::name::FileName;
use annals_format::seal::SealKind;
use annals_format::space::Key;

use super::anew::is_lost;
use super::lost::Lost;
use super::salvage::Salvage;
use crate::exit::{Failure, Outcome};
use crate::files::{log_end, walk};

/// Where the log has been read to.
#[derive(Debug)]
pub(super) struct LogRead {
    /// The newest revision so far, damage or not.
    newest: u64,
    /// The sequence number that comes next, where that is known.
    next_seq: Option<u64>,
    /// Whether what comes next follows damage.
    gap: bool,
    /// The file that follows, as the last seal names it.
    next: Option<u64>,
    pub(super) lost: Lost,
}

impl LogRead {
    /// The log goes on from this revision. `from_names`: files may be missing before the first one that is there, and
    /// all of them, as nobody says where the log begins.
    pub(super) fn new(manifest: &Manifest, from_names: bool) -> Self {
        let next_seq = (!from_names).then_some(manifest.flushed_seq.saturating_add(1));
        let (newest, lost) = (manifest.flushed_revision, Lost::default());
        Self { newest, next_seq, gap: from_names, next: None, lost }
    }

    /// The file that should come before the one of this number, or at the end, and is not there.
    pub(super) fn missing(&mut self, number: Option<u64>) -> Option<FileName> {
        let next = self.next.take().filter(|next| Some(*next) != number)?;
        self.gap = true;
        Some(FileName::new(FileKind::Wal, next))
    }

    /// Nothing follows.
    pub(super) fn finish(mut self) -> Lost {
        if self.gap {
            self.lost.transactions(self.newest + 1, None, 0);
        }
        self.lost
    }

    /// Reads what of a file no other has; answers the first damage.
    pub(super) fn read(
        &mut self,
        files: &StoreFiles,
        name: FileName,
        each: &mut dyn FnMut(&Frame<'_>),
    ) -> Outcome<Option<String>> {
        let flushed = files.manifest().flushed_seq;
        let end = log_end(files, name);
        let mut damage = None;
        let walked = walk(|step| {
            files.wal(name.number, &mut |offset, _, part| {
                match part {
                    _ if offset >= end => {}
                    WalPart::Damage(found) => {
                        damage = damage.take().or(Some(found.to_string()));
                        self.gap = true;
                    }
                    WalPart::Seal(seal) => {
                        if let SealKind::Rolled { next_file, .. } = seal.kind {
                            self.next = Some(next_file);
                        }
                    }
                    WalPart::Frame(frame, _) => {
                        self.frame(frame);
                        if frame.seq > flushed {
                            each(frame);
                        }
                    }
                    _ => {}
                }
                step(Ok(())).map(|_| ())
            })
        });
        match walked {
            // A file that is not there, or cannot be read.
            Err(Failure::Engine { error, .. }) if is_lost(&error) => {
                self.gap = true;
                Ok(Some(error.to_string()))
            }
            walked => walked.map(|()| damage),
        }
    }

    fn frame(&mut self, frame: &Frame<'_>) {
        let last = frame.revision.saturating_sub(u64::from(frame.takes_revision()));
        let transactions = last.saturating_sub(self.newest);
        if self.gap && transactions > 0 {
            self.lost.transactions(self.newest + 1, Some(last), 0);
        }
        if let Some(next) = &mut self.next_seq {
            self.lost.records |= frame.seq.saturating_sub(*next) > transactions;
            *next = frame.seq.saturating_add(1).max(*next);
        }
        self.gap = false;
        self.newest = self.newest.max(frame.revision);
    }
}

impl Salvage {
    /// Reads what no other file has; answers the first damage.
    pub(super) fn log(
        &mut self,
        files: &StoreFiles,
        name: FileName,
        log: &mut LogRead,
    ) -> Outcome<Option<String>> {
        log.read(files, name, &mut |frame| self.frame(frame))
    }

    fn frame(&mut self, frame: &Frame<'_>) {
        if frame.takes_revision() {
            self.transaction(frame.revision, frame.time, frame.metadata);
        } else {
            self.revision = self.revision.max(frame.revision);
            self.time = self.time.max(frame.time);
        }
        for op in frame.ops() {
            let (internal, value, lease) = match op.op {
                Op::Put { key, value, lease } => (key, Some(value), lease),
                Op::Delete { key } => (key, None, 0),
                Op::Compact { .. } => continue,
            };
            match Key::decode(internal) {
                Ok(Key::User(key)) => self.entry(&EntryRef {
                    key: &Key::User(key).encode(),
                    revision: frame.revision,
                    sub: op.sub,
                    tombstone: value.is_none(),
                    create_revision: op.create_revision,
                    version: op.version,
                    lease,
                    value: value.unwrap_or_default(),
                    ..EntryRef::default()
                }),
                Ok(other) => self.system(&other, frame.seq, value),
                Err(_) => {}
            }
        }
    }
}
