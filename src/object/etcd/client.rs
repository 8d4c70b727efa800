//! Calls of a cluster: which member is asked, with which token, how often, and for how long.
//!
//! One member is asked as long as it answers; then the next one is. What was not sent, or may be made twice, is made again until the
//! time of a call is over.

use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::convert::KeyPrefix;
use super::failure::{Asked, CANNOT_SIGN, Verdict, judge};
use super::options::EtcdOptions;
use super::wire;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::plain::{AtomicUsize, Mutex, Ordering, lock};

/// Between two tries; twice as long after each.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A connection that has died silently is noticed in so much time.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
const NOT_ENABLED: &str = "etcdserver: authentication is not enabled";

/// A failure of all tries of a call, and the member that was asked last.
pub(super) struct Failed {
    pub(super) endpoint: String,
    pub(super) status: Status,
}

/// The members of a cluster.
pub(super) struct Client {
    members: Vec<(String, Channel)>,
    /// The one that is asked.
    current: AtomicUsize,
    user: Option<(String, String)>,
    token: Mutex<Option<MetadataValue<Ascii>>>,
    request_time: Duration,
    connect_time: Duration,
    pub(super) keys: KeyPrefix,
}

impl Client {
    /// To be called in a runtime, in which the connections will live.
    pub(super) fn new(endpoints: &[String], options: &EtcdOptions) -> Result<Self> {
        let members: Result<Vec<_>> = endpoints.iter().map(|name| member(name, options)).collect();
        let members = members?;
        if members.is_empty() {
            return Err(bad_endpoint("", "at least one"));
        }
        Ok(Self {
            members,
            current: AtomicUsize::new(0),
            user: options.user.clone(),
            token: Mutex::default(),
            request_time: options.request_time,
            connect_time: connect_time(options),
            keys: KeyPrefix(options.key_prefix.clone()),
        })
    }

    /// The member that is asked just now, and its name.
    pub(super) fn member(&self) -> (usize, &str) {
        let at = self.current.load(Ordering::Acquire);
        (at, self.members.get(at).map_or("", |(name, _)| name))
    }

    /// Asks another member from now on, unless somebody has done that already.
    pub(super) fn leave(&self, at: usize) {
        let next = (at + 1) % self.members.len();
        let order = Ordering::AcqRel;
        let _ = self.current.compare_exchange(at, next, order, Ordering::Acquire);
    }

    /// A caller of a member, to be used for one call.
    pub(super) fn grpc(&self, at: usize) -> Option<Grpc<Channel>> {
        let (_, channel) = self.members.get(at)?;
        let grpc = Grpc::new(channel.clone());
        Some(grpc.max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX))
    }

    /// With the token of the user, which is got where there is none.
    pub(super) async fn signed<Q>(&self, at: usize, message: Q) -> Result<Request<Q>, Status> {
        let mut request = Request::new(message);
        if self.user.is_some() {
            let known = lock(&self.token).clone();
            let token = match known {
                Some(token) => Some(token),
                None => self.authenticate(at).await?,
            };
            if let Some(token) = token {
                request.metadata_mut().insert("token", token);
            }
        }
        Ok(request)
    }

    /// The token is not taken any more.
    pub(super) fn forget_token(&self) {
        lock(&self.token).take();
    }

    /// Gets a token; none of a cluster in which everybody may do everything.
    async fn authenticate(&self, at: usize) -> Result<Option<MetadataValue<Ascii>>, Status> {
        let (name, password) = self.user.clone().unwrap_or_default();
        let request = Request::new(wire::AuthenticateRequest { name, password });
        let answer: Result<wire::AuthenticateResponse, Status> =
            self.send(at, AUTHENTICATE, request).await;
        if matches!(&answer, Err(status) if status.message() == NOT_ENABLED) {
            return Ok(None);
        }
        // What went wrong here has nothing to do with the call that needs the token: that was not sent.
        let answer = answer.map_err(|status| match judge(&status) {
            Verdict::Unknown | Verdict::Again => {
                Status::resource_exhausted(format!("{CANNOT_SIGN}: {}", status.message()))
            }
            _ => Status::permission_denied(status.message()),
        })?;
        let token: MetadataValue<Ascii> =
            answer.token.parse().map_err(|_| Status::permission_denied("the token is no text"))?;
        *lock(&self.token) = Some(token.clone());
        Ok(Some(token))
    }

    async fn send<Q, A>(
        &self,
        at: usize,
        path: &'static str,
        request: Request<Q>,
    ) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc(at).ok_or_else(|| Status::internal("no such member"))?;
        grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        let codec = ProstCodec::<Q, A>::default();
        let answer = grpc.unary(request, PathAndQuery::from_static(path), codec).await?;
        Ok(answer.into_inner())
    }

    /// Makes a call until it is answered, cannot be made again, or its time is over.
    pub(super) async fn call<Q, A>(
        &self,
        path: &'static str,
        message: Q,
        asked: &Asked,
    ) -> Result<A, Failed>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let (begin, mut pause, mut tokens) = (Instant::now(), PAUSE, 0);
        loop {
            let (at, name) = self.member();
            let left = self.request_time.saturating_sub(begin.elapsed());
            let once = async {
                let request = self.signed(at, message.clone()).await?;
                self.send(at, path, request).await
            };
            let status = match tokio::time::timeout(left, once).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => status,
                Err(_) => {
                    Status::deadline_exceeded(format!("no answer in {:?}", self.request_time))
                }
            };
            let verdict = judge(&status);
            let may_again = match verdict {
                Verdict::Again => true,
                Verdict::Authenticate => {
                    self.forget_token();
                    tokens += 1;
                    self.user.is_some() && tokens < 3
                }
                Verdict::Unknown => !asked.is_write,
                Verdict::Refused => false,
            };
            if matches!(verdict, Verdict::Again | Verdict::Unknown) {
                self.leave(at);
            }
            // A write that ends while it waits for a connection would seem to have been sent.
            let needed = if asked.is_write { pause + self.connect_time } else { pause };
            let is_late = begin.elapsed() + needed >= self.request_time;
            if !may_again || is_late {
                return Err(Failed { endpoint: name.to_owned(), status });
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// A call that cannot be sent is to say so before its time is over.
fn connect_time(options: &EtcdOptions) -> Duration {
    options.connect_time.min(options.request_time / 2)
}

fn bad_endpoint(value: &str, expected: &str) -> Error {
    let (name, value, expected) = ("endpoints".into(), value.into(), expected.into());
    ErrorKind::InvalidOption { name, value, expected }.into()
}

fn member(name: &str, options: &EtcdOptions) -> Result<(String, Channel)> {
    let has_tls = options.ca_certificate.is_some() || options.identity.is_some();
    let url = match name.split_once("://") {
        Some(("http" | "https", _)) => name.to_owned(),
        Some(_) => return Err(bad_endpoint(name, "a URL with http or https")),
        None if has_tls => format!("https://{name}"),
        None => format!("http://{name}"),
    };
    let endpoint = Endpoint::from_shared(url.clone())
        .map_err(|bad| bad_endpoint(name, &format!("a URL ({bad})")))?
        .connect_timeout(connect_time(options))
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .tcp_nodelay(true);
    if url.starts_with("http://") {
        return Ok((url, endpoint.connect_lazy()));
    }
    let mut tls = ClientTlsConfig::new();
    if let Some(pem) = &options.ca_certificate {
        tls = tls.ca_certificate(Certificate::from_pem(pem));
    }
    if let Some((certificate, key)) = &options.identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    if let Some(name) = &options.domain_name {
        tls = tls.domain_name(name);
    }
    let endpoint = endpoint.tls_config(tls).map_err(|bad| {
        let (name, value) = ("certificates".into(), bad.to_string());
        Error::from(ErrorKind::InvalidOption { name, value, expected: "PEM".into() })
    })?;
    Ok((url, endpoint.connect_lazy()))
}
