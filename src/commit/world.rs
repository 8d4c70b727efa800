//! What the chain needs of the store around it: three small interfaces, so that it can be built,
//! tested and model-checked alone.

use std::fmt::Debug;

use crate::error::Result;
use crate::index::{Generation, GenerationSize, Stub};
use crate::sync::Arc;
use crate::wal::BatchInfo;

/// Looks up the past of a key in older structures: frozen generations and files.
pub(crate) trait Below: Sync {
    /// The newest version of an internal key in everything older than generation `generation`;
    /// `None` if there is none. May read files.
    ///
    /// The chain calls it while it prepares a transaction, before anything is shared. At that time
    /// [`World::switched`] has returned for `generation`, so all older ones are frozen.
    fn newest(&self, key: &[u8], generation: u64) -> Result<Option<Stub>>;
}

/// The write-ahead log, as the holder of the sync role sees it.
pub(crate) trait Log: Send + Debug {
    /// Writes the frames as one batch and returns when they are durable. After an error nothing
    /// is known about them, and the log is not called again.
    fn append(&mut self, frames: &mut dyn Iterator<Item = &[u8]>, batch: BatchInfo) -> Result<()>;
}

/// Everything else. Every method may be called by any thread at any time; none may wait for another
/// thread, nor call back into the chain.
pub(crate) trait World: Send + Sync + Debug {
    /// Wall time in microseconds since the Unix epoch.
    fn now_micros(&self) -> i64;

    /// An empty generation of at least this size, numbered `id`. Several threads may ask for the
    /// same `id` at once; only one of their generations is used, the others are dropped.
    fn new_generation(&self, id: u64, least: GenerationSize) -> Arc<Generation>;

    /// Whether there may be one generation more. A commit asks directly before it begins one, and
    /// gets no place if not; what ends a generation for another reason does not ask. At that time
    /// [`switched`](Self::switched) has returned for the generation that is full.
    fn has_room(&self) -> bool;

    /// Whether the log has room made for all frames up to this many bytes since the store was opened, of which the
    /// last is that of a commit that asks directly before its link; `compacts` says that this sets a watermark.
    fn log_takes(&self, _logged_bytes: u64, _compacts: bool) -> bool {
        true
    }

    /// The chain goes on in `current`. Called before anything in it becomes visible, and maybe
    /// several times, also late, by several threads: everyone who applies the switch calls it.
    /// The generation before `current` is frozen.
    fn switched(&self, current: &Arc<Generation>);

    /// Asks a background thread to call [`Chain::lead_once`](super::Chain::lead_once) soon. Answers
    /// whether there is one.
    fn request_lead(&self) -> bool;

    /// Asks a background thread to look what there is to do, if there is one.
    fn request_work(&self);

    /// More is visible, or no more ever will be: somebody has
    /// [asked](super::Chain::tell_when) to be told, and may sleep.
    fn visible_moved(&self) {}
}
