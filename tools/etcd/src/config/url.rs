//! The addresses in flags: `http://host:port`, `https://`, `unix://path`, `unixs://path`.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

/// One address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenUrl {
    /// Where.
    pub place: Place,
    /// Whether TLS is spoken there.
    pub tls: bool,
    text: String,
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A host, by name or number, and a port.
    Tcp {
        /// The host; empty for all addresses.
        host: String,
        /// The port; 0 for any that is free.
        port: u16,
    },
    /// A socket of the file system.
    Unix(PathBuf),
}

impl fmt::Display for ListenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl ListenUrl {
    /// Reads one.
    ///
    /// # Errors
    /// It is none, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let wrong = |why: &str| Err(format!("URL {text:?}: {why}"));
        let Some((scheme, rest)) = text.split_once("://") else {
            return wrong("it has to begin with http://, https://, unix:// or unixs://");
        };
        let tls = matches!(scheme, "https" | "unixs");
        match scheme {
            "unix" | "unixs" if rest.is_empty() => wrong("the path of the socket is missing"),
            "unix" | "unixs" => {
                Ok(Self { place: Place::Unix(rest.into()), tls, text: text.to_owned() })
            }
            "http" | "https" => {
                let rest = rest.strip_suffix('/').unwrap_or(rest);
                if rest.contains('/') {
                    return wrong("URL must not contain a path");
                }
                let Some((host, port)) = rest.rsplit_once(':') else {
                    return wrong("URL address does not have the form \"host:port\"");
                };
                let Ok(port) = port.parse() else {
                    return wrong("the port is not a number up to 65535");
                };
                let host =
                    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
                Ok(Self {
                    place: Place::Tcp { host: host.to_owned(), port },
                    tls,
                    text: text.to_owned(),
                })
            }
            _ => wrong("URL scheme must be http, https, unix, or unixs"),
        }
    }

    /// Reads several, with commas between them. Empty text is none.
    ///
    /// # Errors
    /// One of them is none.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        let mut urls = Vec::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let url = Self::parse(part)?;
            if !urls.contains(&url) {
                urls.push(url);
            }
        }
        Ok(urls)
    }

    /// The addresses to bind: those of the host's name, all addresses if it is empty.
    ///
    /// # Errors
    /// The host's name is not known.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        let Place::Tcp { host, port } = &self.place else { return Ok(Vec::new()) };
        if host.is_empty() {
            return Ok(vec![SocketAddr::new(IpAddr::from([0_u8; 16]), *port)]);
        }
        // As etcd: all listeners of one name are on one address, the first, with IPv4 before IPv6.
        let found = (host.as_str(), *port).to_socket_addrs();
        let mut found: Vec<_> =
            found.map_err(|error| format!("cannot find {host:?}: {error}"))?.collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        found.truncate(1);
        Ok(found)
    }

    /// Whether others than this machine can reach it.
    ///
    /// # Errors
    /// As [`ListenUrl::addresses`].
    pub fn is_network(&self) -> Result<bool, String> {
        Ok(self.addresses()?.iter().any(|address| !address.ip().to_canonical().is_loopback()))
    }
}

#[cfg(test)]
mod tests {
    use super::{ListenUrl, Place};

    #[test]
    fn forms() {
        let parsed = |text: &str| ListenUrl::parse(text).map(|url| (url.place, url.tls));
        let tcp = |host: &str, port| Place::Tcp { host: host.to_owned(), port };
        assert_eq!(parsed("http://localhost:2379"), Ok((tcp("localhost", 2379), false)));
        assert_eq!(parsed(" https://[::1]:0/"), Ok((tcp("::1", 0), true)));
        assert_eq!(parsed("http://:2379"), Ok((tcp("", 2379), false)));
        assert_eq!(parsed("unixs:///run/a.sock"), Ok((Place::Unix("/run/a.sock".into()), true)));
        assert_eq!(parsed("unix://localhost:5"), Ok((Place::Unix("localhost:5".into()), false)));
        for bad in [
            "localhost:2379",
            "ftp://a:1",
            "http://a",
            "http://a:99999",
            "http://a:1/b",
            "unix://",
            "",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        assert_eq!(
            ListenUrl::parse_list("http://a:1,,http://a:1,http://b:2").map(|list| list.len()),
            Ok(2)
        );
    }

    #[test]
    fn networks() {
        let network = |text: &str| ListenUrl::parse(text).and_then(|url| url.is_network());
        for local in
            ["http://127.0.0.1:1", "http://[::1]:1", "http://[::ffff:127.0.0.1]:1", "unix://a"]
        {
            assert_eq!(network(local), Ok(false), "{local}");
        }
        for wide in ["http://0.0.0.0:1", "http://[::]:1", "http://:1", "http://10.0.0.1:1"] {
            assert_eq!(network(wide), Ok(true), "{wide}");
        }
    }
}
