//! How a cluster is reached.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

/// How long a call may take, unless another time is set.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// How long making a connection may take, unless another time is set.
const CONNECT_TIME: Duration = Duration::from_secs(3);

/// How [`EtcdKv::connect`](super::EtcdKv::connect) reaches a cluster.
///
/// ```no_run
/// use std::time::Duration;
/// use annals::object::{EtcdKv, EtcdOptions};
///
/// let ca = std::fs::read("ca.pem")?;
/// let options = EtcdOptions::new()
///     .ca_certificate(ca)
///     .user("web", "secret")
///     .request_time(Duration::from_secs(5));
/// let kv = EtcdKv::connect(["https://a.example:2379", "https://b.example:2379"], options)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct EtcdOptions {
    pub(super) user: Option<(String, String)>,
    pub(super) ca_certificate: Option<Vec<u8>>,
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) domain_name: Option<String>,
    pub(super) request_time: Duration,
    pub(super) connect_time: Duration,
    pub(super) key_prefix: Bytes,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            user: None,
            ca_certificate: None,
            identity: None,
            domain_name: None,
            request_time: REQUEST_TIME,
            connect_time: CONNECT_TIME,
            key_prefix: Bytes::new(),
        }
    }
}

impl EtcdOptions {
    /// No user, no certificates of one's own, ten seconds for a call, three for a connection, and keys as they are.
    ///
    /// ```no_run
    /// use annals::object::{EtcdKv, EtcdOptions};
    /// let kv = EtcdKv::connect(["http://127.0.0.1:2379"], EtcdOptions::new())?;
    /// # Ok::<(), annals::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Whose permissions are used. A token is got with the password, and another when etcd does not take that any more.
    ///
    /// ```no_run
    /// use annals::object::{EtcdKv, EtcdOptions};
    /// let options = EtcdOptions::new().user("web", "secret");
    /// let kv = EtcdKv::connect(["http://127.0.0.1:2379"], options)?;
    /// # Ok::<(), annals::Error>(())
    /// ```
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Who vouches for the servers: certificates in PEM. Endpoints with `https` need it: the authorities that the system knows
    /// are not asked.
    ///
    /// ```no_run
    /// use annals::object::{EtcdKv, EtcdOptions};
    /// let options = EtcdOptions::new().ca_certificate(std::fs::read("ca.pem")?);
    /// let kv = EtcdKv::connect(["https://127.0.0.1:2379"], options)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca_certificate = Some(pem.into());
        self
    }

    /// The certificate of this client and its key, both in PEM, for servers that ask for one.
    ///
    /// ```no_run
    /// use annals::object::{EtcdKv, EtcdOptions};
    /// let options = EtcdOptions::new()
    ///     .ca_certificate(std::fs::read("ca.pem")?)
    ///     .client_certificate(std::fs::read("client.pem")?, std::fs::read("client-key.pem")?);
    /// let kv = EtcdKv::connect(["https://127.0.0.1:2379"], options)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// The name that the certificates of the servers have, where it is not that of the endpoint.
    ///
    /// ```no_run
    /// use annals::object::{EtcdKv, EtcdOptions};
    /// let ca = std::fs::read("ca.pem")?;
    /// let options = EtcdOptions::new().ca_certificate(ca).domain_name("etcd.example");
    /// let kv = EtcdKv::connect(["https://10.0.0.1:2379"], options)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn domain_name(mut self, name: impl Into<String>) -> Self {
        self.domain_name = Some(name.into());
        self
    }

    /// How long a call may take, with all that it tries again.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use annals::object::{EtcdKv, EtcdOptions};
    /// let options = EtcdOptions::new().request_time(Duration::from_secs(2));
    /// let kv = EtcdKv::connect(["http://127.0.0.1:2379"], options)?;
    /// # Ok::<(), annals::Error>(())
    /// ```
    #[must_use]
    pub fn request_time(mut self, time: Duration) -> Self {
        self.request_time = time;
        self
    }

    /// How long making a connection to one endpoint may take.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use annals::object::{EtcdKv, EtcdOptions};
    /// let options = EtcdOptions::new().connect_time(Duration::from_millis(500));
    /// let kv = EtcdKv::connect(["http://127.0.0.1:2379"], options)?;
    /// # Ok::<(), annals::Error>(())
    /// ```
    #[must_use]
    pub fn connect_time(mut self, time: Duration) -> Self {
        self.connect_time = time;
        self
    }

    /// What all keys begin with in the cluster; nobody above sees it. So several programs have key spaces of their own, but one
    /// count of revisions, and one compaction.
    ///
    /// ```no_run
    /// use annals::object::{EtcdKv, EtcdOptions};
    /// let options = EtcdOptions::new().key_prefix("tenant-7/");
    /// let kv = EtcdKv::connect(["http://127.0.0.1:2379"], options)?;
    /// # Ok::<(), annals::Error>(())
    /// ```
    #[must_use]
    pub fn key_prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.key_prefix = Bytes::copy_from_slice(prefix.as_ref());
        self
    }
}

/// Without the password, and without keys.
impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("has_ca_certificate", &self.ca_certificate.is_some())
            .field("has_client_certificate", &self.identity.is_some())
            .field("domain_name", &self.domain_name)
            .field("request_time", &self.request_time)
            .field("connect_time", &self.connect_time)
            .field("key_prefix", &self.key_prefix)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let options = EtcdOptions::new().user("web", "hunter2").client_certificate("c", "k3y");
        let shown = format!("{options:?}");
        assert!(shown.contains("web") && !shown.contains("hunter2") && !shown.contains("k3y"));
    }
}
