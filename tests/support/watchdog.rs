//! Ends the process, with a message, when a case takes far too long: a hang is a failure too.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Dropping it calls the watch off.
#[derive(Debug)]
pub struct Watchdog {
    state: Arc<Mutex<Option<(Instant, String)>>>,
}

impl Watchdog {
    /// Watches cases that may each take `patience`.
    pub fn new(patience: Duration) -> Self {
        let state = Arc::new(Mutex::new(None::<(Instant, String)>));
        let watched = Arc::downgrade(&state);
        std::thread::spawn(move || {
            while let Some(state) = watched.upgrade() {
                if let Some((since, case)) = &*state.lock().unwrap()
                    && since.elapsed() > patience
                {
                    eprintln!("no end after {patience:?}: {case}");
                    std::process::abort();
                }
                drop(state);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Self { state }
    }

    /// A new case begins.
    pub fn begin(&self, case: impl Into<String>) {
        *self.state.lock().unwrap() = Some((Instant::now(), case.into()));
    }

    /// The last one that began.
    #[allow(dead_code, reason = "some tests have this file alone, and only watch")]
    pub fn case(&self) -> String {
        self.state.lock().unwrap().as_ref().map_or_else(String::new, |(_, case)| case.clone())
    }
}
