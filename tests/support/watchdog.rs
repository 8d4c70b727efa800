//! Ends the process, with a message and the stacks of its threads, when a case takes far too long: a hang is a failure too.

use std::process::{self, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How often it looks.
const TURN: Duration = Duration::from_millis(200);

/// The most that one turn is taken to have lasted: time in which the machine stood still is nobody's hang.
const LONGEST_TURN: Duration = Duration::from_secs(1);

/// Dropping it calls the watch off.
#[derive(Debug)]
pub struct Watchdog {
    state: Arc<Mutex<Option<(Duration, String)>>>,
}

impl Watchdog {
    /// Watches cases that may each take `patience`.
    pub fn new(patience: Duration) -> Self {
        let state = Arc::new(Mutex::new(None::<(Duration, String)>));
        let watched = Arc::downgrade(&state);
        thread::spawn(move || {
            let mut last = Instant::now();
            while let Some(state) = watched.upgrade() {
                let turn = last.elapsed().min(LONGEST_TURN);
                last = Instant::now();
                if let Some((taken, case)) = &mut *state.lock().unwrap() {
                    *taken += turn;
                    if *taken > patience {
                        eprintln!("no end after {patience:?}: {case}");
                        show_stacks();
                        process::abort();
                    }
                }
                drop(state);
                thread::sleep(TURN);
            }
        });
        Self { state }
    }

    /// A new case begins.
    pub fn begin(&self, case: impl Into<String>) {
        *self.state.lock().unwrap() = Some((Duration::ZERO, case.into()));
    }

    /// The last one that began.
    #[allow(dead_code, reason = "some tests have this file alone, and only watch")]
    pub fn case(&self) -> String {
        self.state.lock().unwrap().as_ref().map_or_else(String::new, |(_, case)| case.clone())
    }
}

/// Where each thread stands, if there is a gdb that may look.
fn show_stacks() {
    let shown = Command::new("gdb")
        .args(["-batch", "-nx", "-ex", "thread apply all backtrace 40", "-p"])
        .arg(process::id().to_string())
        .stdin(Stdio::null())
        .output();
    match shown {
        Ok(shown) => eprintln!("{}", String::from_utf8_lossy(&shown.stdout)),
        Err(error) => {
            eprintln!("where its threads stand is not known, as gdb does not run: {error}");
        }
    }
}
