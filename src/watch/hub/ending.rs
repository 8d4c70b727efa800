//! What ends with the hub.

use crate::error::{Error, ErrorKind};
use crate::sync::Arc;
use crate::sync::plain::lock;

use super::Hub;
use super::wake::wake;

/// The end of the thread: with the store, or by a panic; without a thread, that of the store. Nobody will be told anything any more.
pub(super) struct Ending {
    pub(super) hub: Arc<Hub>,
    /// Whether there was a thread at all: if the system refuses one, nothing ends.
    pub(super) begun: bool,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.begun {
            return;
        }
        let hub = &self.hub;
        let error: Error = ErrorKind::Closed.into();
        let mut follow = lock(&hub.follow);
        lock(&hub.registry).over = Some(error.clone());
        let sleepers = hub.fail(&mut follow, &error);
        drop(follow);
        let gone = lock(&hub.recent).clear();
        wake(sleepers);
        drop(gone);
    }
}
