//! Recovery: frames read back from the log take the places they had.

use annals_format::frame::{Frame, FrameOp, FrameSize, Op};
use annals_format::space;
use smallvec::SmallVec;

use super::chain::Chain;
use crate::error::Error;
use crate::index::{
    Bound, Full, Generation, GenerationSize, KeyNode, Link, Node, Place, Position, Transaction,
    Version,
};
use crate::sync::epoch;

impl Chain {
    /// Appends a frame of the log with its recorded seq, revision, time, `create_revision`s and
    /// `version`s; it is applied and durable at once. Switches generations like a commit does.
    ///
    /// Looks nothing up in older structures: a chain of versions that begins with a replayed one
    /// ends in nothing, which readers take as "look below".
    ///
    /// One thread replays, and nobody commits meanwhile; any number may read.
    ///
    /// # Errors
    /// When the frame does not follow the last one. What it holds was checked when it was decoded.
    pub(crate) fn replay(&self, frame: &Frame<'_>) -> Result<(), Error> {
        let guard = epoch::pin();
        let mut last = self.catch_up(self.applied_node(&guard), &guard);
        let refused = |why: &str| {
            Err(Error::invalid(format!("frame {} of the log cannot be replayed: {why}", frame.seq)))
        };
        let before = last.position();
        let position = Position { seq: frame.seq, revision: frame.revision, time: frame.time };
        if position.seq != before.seq + 1
            || position.revision != before.revision + u64::from(frame.takes_revision())
            || position.time < before.time
        {
            return refused(&format!("{position:?} does not follow {before:?}"));
        }
        // Decoded once; they are walked several times.
        let ops: SmallVec<[FrameOp<'_>; 2]> = frame.ops().collect();
        let all: &[FrameOp<'_>] = &ops;
        let ops = all.iter().map(|op| op.op);
        let size = FrameSize::of(frame.metadata, ops.clone());
        let transaction = Transaction {
            size,
            buffered: frame.is_buffered(),
            metadata: frame.metadata,
            compact: frame.compact().unwrap_or(0),
            ops,
        };
        let mut doubled = 0_u32;
        let node = loop {
            let prepared = self.prepare_replay(last.generation(), frame, all, &transaction);
            if let Ok(node) = prepared {
                break node;
            }
            let keys = all.iter().filter_map(|op| op.op.key().map(<[u8]>::len));
            let key_bytes = keys.clone().fold(0, usize::saturating_add);
            // Nobody else takes room here; but this must end, whatever is lost at the ends of chunks.
            let least = GenerationSize::for_frame(&size, keys.count(), key_bytes).doubled(doubled);
            doubled = doubled.saturating_add(1);
            self.switch(last, least, &guard);
            last = self.catch_up(last, &guard);
        };
        let Place { order, compacted, logged_bytes, .. } = last.place();
        let (order, compacted) = (order + 1, compacted.max(node.compact()));
        // Not for the log to write: it comes from there.
        // SAFETY: prepared above, and not linked.
        unsafe { node.bind(Place { order, position, compacted, logged_bytes }) };
        // SAFETY: as above; everything is bound.
        unsafe { node.patch_frame(&self.binding) };
        // SAFETY: as above.
        if !unsafe { last.link(node, false) } {
            return refused("something else was committed meanwhile");
        }
        self.apply(last, Link { node, opens_generation: false }, &guard);
        self.advance(node, &guard);
        node.generation().note(node);
        self.publish_replayed(node, &guard);
        Ok(())
    }

    /// Makes the node of a frame, with its versions bound.
    fn prepare_replay<'g, 'a>(
        &self,
        generation: &'g Generation,
        frame: &Frame<'a>,
        ops: &[FrameOp<'a>],
        transaction: &Transaction<'_, impl Iterator<Item = Op<'a>> + Clone>,
    ) -> Result<&'g Node, Full> {
        let keys = ops.iter().filter_map(|op| op.op.key());
        let keys = keys.map(|key| generation.get_or_insert(key));
        let keys = keys.collect::<Result<SmallVec<[&KeyNode; 4]>, Full>>()?;
        let node = generation.prepare(&self.binding, transaction, &keys)?;
        for ((key, version), op) in keys.iter().zip(node.versions()).zip(ops) {
            let is_user = space::is_user(key.key());
            let bound = Bound {
                older: key.head().map_or(std::ptr::null(), |head: &Version| head),
                at: if is_user { frame.revision } else { frame.seq },
                create_revision: op.create_revision,
                version: op.version,
            };
            // SAFETY: prepared here, and not linked.
            unsafe { version.bind(bound) };
        }
        Ok(node)
    }
}
