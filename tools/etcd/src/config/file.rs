//! `--config-file`: the same settings as flags, in YAML or JSON.

use serde_json::Value;

use crate::config::flags::{Flags, give_one};

/// Settings that are durations: a file gives them in nanoseconds.
const DURATIONS: &[&str] = &[
    "grpc-keepalive-min-time",
    "grpc-keepalive-interval",
    "grpc-keepalive-timeout",
    "watch-progress-notify-interval",
    "experimental-watch-progress-notify-interval",
    "tls-handshake-timeout",
    "shutdown-timeout",
];

/// Reads the text of such a file.
pub(crate) fn read(text: &str) -> Result<Flags, String> {
    let options = serde_saphyr::options! { strict_booleans: true };
    let parsed: Value =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())?;
    let mut flags = Flags::default();
    let settings = match parsed {
        Value::Null => return Ok(flags),
        Value::Object(settings) => settings,
        _ => return Err("the file has to hold settings as `name: value`".to_owned()),
    };
    for (name, value) in &settings {
        match (name.as_str(), value) {
            ("client-transport-security", Value::Object(inner)) => {
                for (name, value) in inner {
                    give(&mut flags, client_flag(name), value)?;
                }
            }
            ("peer-transport-security", Value::Object(inner)) => {
                for name in inner.keys() {
                    give_one(&mut flags, &format!("peer-{name}"), "");
                }
            }
            (_, Value::Object(_)) => give_one(&mut flags, name, ""),
            _ => give(&mut flags, name, value)?,
        }
    }
    Ok(flags)
}

/// Which flag a name within `client-transport-security` is.
fn client_flag(name: &str) -> &str {
    match name {
        "allowed-hostnames" | "allowed-hostname" => "client-cert-allowed-hostname",
        "crl-file" => "client-crl-file",
        name => name,
    }
}

fn give(flags: &mut Flags, name: &str, value: &Value) -> Result<(), String> {
    let text = match value {
        Value::Null => return Ok(()),
        Value::Number(nanos) if DURATIONS.contains(&name) => format!("{nanos}ns"),
        Value::Array(parts) => parts.iter().map(scalar).collect::<Result<Vec<_>, _>>()?.join(","),
        value => scalar(value)?,
    };
    if !text.is_empty() {
        give_one(flags, name, &text);
    }
    Ok(())
}

fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        _ => Err(format!("{value} is neither text nor a number, nor true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn the_settings_are_those_of_flags() {
        let text = "# a comment\nname: one\ndata-dir: '/var/lib/annals'\nmax-txn-ops: 7\n\
            listen-client-urls: http://127.0.0.1:1,http://127.0.0.1:2\nlog-outputs: [stderr, stdout]\n\
            grpc-keepalive-interval: 5000000000\nclient-transport-security:\n  cert-file: a.pem\n  \
            client-cert-auth: true\npeer-transport-security:\n  cert-file: b.pem\ninitial-cluster: a=b\n\
            frob: 1\nwal-dir:\n";
        let flags = read(text).unwrap_or_default();
        let expected = [
            "--name=one",
            "--data-dir=/var/lib/annals",
            "--max-txn-ops=7",
            "--listen-client-urls=http://127.0.0.1:1,http://127.0.0.1:2",
            "--log-outputs=stderr,stdout",
            "--grpc-keepalive-interval=5000000000ns",
            "--cert-file=a.pem",
            "--client-cert-auth=true",
        ];
        assert_eq!(flags.given, expected);
        assert_eq!(flags.notes.len(), 3);
        assert!(
            read("- a\n- b\n").is_err() && read("name: [[1]]").is_err() && read("a: b: c").is_err()
        );
        assert!(read("").is_ok_and(|flags| flags.given.is_empty()));
    }
}
