//! What the server says about itself: lines of JSON as etcd's, each with a level, a time, where it was said, a
//! text and fields.
//!
//! Scripts wait for some of etcd's lines, so the texts that mean the same are etcd's.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::{Map, Value};

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Of use to those who look for a fault.
    Debug,
    /// What happens.
    Info,
    /// What somebody should look at some time.
    Warn,
    /// Something did not work.
    Error,
    /// Something did not work that always should.
    Panic,
    /// The server ends because of it.
    Fatal,
}

impl Level {
    /// The level of such a name, as `--log-level` takes it.
    pub fn parse(name: &str) -> Option<Self> {
        let level = match name.to_ascii_lowercase().as_str() {
            "debug" => Self::Debug,
            "info" | "" => Self::Info,
            "warn" => Self::Warn,
            "error" => Self::Error,
            "dpanic" | "panic" => Self::Panic,
            "fatal" => Self::Fatal,
            _ => return None,
        };
        Some(level)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Panic => "panic",
            Self::Fatal => "fatal",
        }
    }
}

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// As one JSON object.
    #[default]
    Json,
    /// For people: tabs between the parts, the fields as JSON at the end.
    Console,
}

/// Where lines go.
#[derive(Debug)]
enum Output {
    Stderr,
    Stdout,
    File(Mutex<File>),
}

/// The log of the process: outputs are set once, lines before that go to standard error.
#[derive(Debug)]
struct Sink {
    outputs: Vec<Output>,
    format: Format,
}

static SINK: OnceLock<Sink> = OnceLock::new();
static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// Sets up the log of this process: what `--log-outputs`, `--log-format` and `--log-level` say. Only the first
/// call sets the outputs.
///
/// # Errors
/// An output cannot be opened.
pub fn init(level: Level, format: Format, outputs: &[String]) -> io::Result<()> {
    LEVEL.store(level as u8, Ordering::Relaxed);
    let mut opened = Vec::new();
    for name in outputs {
        opened.push(match name.as_str() {
            "default" | "stderr" | "systemd/journal" => Output::Stderr,
            "stdout" => Output::Stdout,
            path => Output::File(Mutex::new(open(path)?)),
        });
    }
    if opened.is_empty() {
        opened.push(Output::Stderr);
    }
    let _ = SINK.set(Sink { outputs: opened, format });
    Ok(())
}

fn open(path: &str) -> io::Result<File> {
    let opened = OpenOptions::new().create(true).append(true).open(Path::new(path));
    opened.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot open the log {path:?}: {error}"))
    })
}

/// Whether lines of this level are written.
pub fn enabled(level: Level) -> bool {
    level as u8 >= LEVEL.load(Ordering::Relaxed)
}

/// Writes a line. The macros [`info!`](crate::info), [`warn!`](crate::warn), [`error!`](crate::error) and
/// [`debug!`](crate::debug) fill in where they stand.
pub fn write(level: Level, caller: (&str, u32), message: &str, fields: Map<String, Value>) {
    if !enabled(level) {
        return;
    }
    let sink = SINK.get();
    let format = sink.map_or(Format::Json, |sink| sink.format);
    let line = line(format, level, caller, message, fields);
    // Where the log cannot be written there is nobody to tell.
    match sink {
        None => drop(io::stderr().write_all(line.as_bytes())),
        Some(sink) => {
            for output in &sink.outputs {
                let _ = match output {
                    Output::Stderr => io::stderr().write_all(line.as_bytes()),
                    Output::Stdout => io::stdout().write_all(line.as_bytes()),
                    Output::File(file) => file.lock().write_all(line.as_bytes()),
                };
            }
        }
    }
}

/// A line about what went wrong.
#[track_caller]
pub fn error(message: &str, fields: &[(&str, Value)]) {
    say(Level::Error, message, fields);
}

/// A line about what should be looked at.
#[track_caller]
pub fn warn(message: &str, fields: &[(&str, Value)]) {
    say(Level::Warn, message, fields);
}

#[track_caller]
fn say(level: Level, message: &str, fields: &[(&str, Value)]) {
    if enabled(level) {
        let caller = std::panic::Location::caller();
        let fields =
            fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        write(level, (caller.file(), caller.line()), message, fields);
    }
}

fn line(
    format: Format,
    level: Level,
    caller: (&str, u32),
    message: &str,
    fields: Map<String, Value>,
) -> String {
    let (file, number) = caller;
    let file = file.rsplitn(3, '/').take(2).collect::<Vec<_>>();
    let caller = match file.as_slice() {
        [name, folder] => format!("{folder}/{name}:{number}"),
        _ => format!("{}:{number}", file.concat()),
    };
    let now = timestamp(SystemTime::now());
    if format == Format::Console {
        let mut text = format!("{now}\t{}\t{caller}\t{message}", level.name().to_ascii_uppercase());
        if !fields.is_empty() {
            let _ = write!(text, "\t{}", Value::Object(fields));
        }
        return text + "\n";
    }
    let mut whole = Map::new();
    whole.insert("level".to_owned(), level.name().into());
    whole.insert("ts".to_owned(), now.into());
    whole.insert("caller".to_owned(), caller.into());
    whole.insert("msg".to_owned(), message.into());
    whole.extend(fields);
    Value::Object(whole).to_string() + "\n"
}

/// A time as `2026-11-23T08:49:14.724Z`.
fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since.as_secs(), since.subsec_millis());
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Days are counted from 1 March of the year 0: leap days are the last of their year then.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Writes a line of the level given first: `say!(Level::Info, "text", "name" = value, ...)`.
#[macro_export]
macro_rules! say {
    ($level:expr, $message:expr $(, $name:literal = $value:expr)* $(,)?) => {
        if $crate::log::enabled($level) {
            #[allow(unused_mut, reason = "a line may have no fields")]
            let mut fields = ::serde_json::Map::new();
            $(fields.insert($name.to_owned(), ::serde_json::json!($value));)*
            $crate::log::write($level, (file!(), line!()), $message, fields);
        }
    };
}

/// Says what happens.
#[macro_export]
macro_rules! info {
    ($($rest:tt)*) => { $crate::say!($crate::log::Level::Info, $($rest)*) };
}

/// Says what somebody should look at.
#[macro_export]
macro_rules! warn {
    ($($rest:tt)*) => { $crate::say!($crate::log::Level::Warn, $($rest)*) };
}

/// Says that something did not work.
#[macro_export]
macro_rules! error {
    ($($rest:tt)*) => { $crate::say!($crate::log::Level::Error, $($rest)*) };
}

/// Says what helps to find a fault.
#[macro_export]
macro_rules! debug {
    ($($rest:tt)*) => { $crate::say!($crate::log::Level::Debug, $($rest)*) };
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::{Map, Value, json};

    use super::{Format, Level, line, timestamp};

    #[test]
    fn times() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_423_754_724, "2026-11-23T08:49:14.724Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00.000Z"),
        ];
        for (millis, text) in cases {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_line_is_json_in_the_order_of_etcd() {
        let mut fields = Map::new();
        fields.insert("address".to_owned(), json!("127.0.0.1:2379"));
        fields.insert("took".to_owned(), json!(3));
        let line = line(
            Format::Json,
            Level::Warn,
            ("tools/etcd/src/serve.rs", 12),
            "said \"so\"\n",
            fields,
        );
        let value: Value = serde_json::from_str(&line).unwrap_or_default();
        let keys: Vec<_> =
            value.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default();
        assert_eq!(keys, ["level", "ts", "caller", "msg", "address", "took"]);
        assert_eq!(value["caller"], "src/serve.rs:12");
        assert_eq!(value["msg"], "said \"so\"\n");
        assert!(line.ends_with("}\n") && line.matches('\n').count() == 1);
    }

    #[test]
    fn levels() {
        assert_eq!(Level::parse("WARN"), Some(Level::Warn));
        assert_eq!(Level::parse("loud"), None);
        assert!(Level::Debug < Level::Info && Level::Panic < Level::Fatal);
    }
}
