//! What is served beside gRPC on the same ports: health, version, metrics, and the way to the JSON gateway.

pub(crate) mod probe;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use http::header::{ALLOW, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use serde_json::json;

use crate::config::Config;
use crate::gateway::{Gateway, socket};
use crate::metrics::{Metrics, Text};
use crate::serve::Shutdown;
use crate::serve::calls::Calls;
use crate::serve::conn::Peer;
use crate::services::Services;
use crate::{VERSION, debug, warn};

/// What is served.
pub struct App {
    /// The gRPC services.
    pub grpc: Services,
    /// Who knows how the server is.
    pub probe: Arc<dyn Probe>,
    /// What the services count.
    pub metrics: Arc<Metrics>,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}

/// What health and metrics ask of the server. Answers have to come at once.
pub trait Probe: Send + Sync + 'static {
    /// The alarms that are raised, by their names: `NOSPACE`, `CORRUPT`.
    fn alarms(&self) -> Vec<String>;
    /// Reads something, whoever is logged in.
    ///
    /// # Errors
    /// Why nothing can be read.
    fn read(&self) -> Result<(), String>;
    /// Whether authentication is enabled.
    fn auth_enabled(&self) -> bool;
    /// This member's number.
    fn member_id(&self) -> u64;
    /// What the store says about itself.
    fn stats(&self) -> Option<annals::Stats>;
    /// Keys that are alive.
    fn keys(&self) -> Option<u64> {
        None
    }
    /// More figures.
    fn write_metrics(&self, text: &mut Text) {
        let _ = text;
    }
}

/// What a listener takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    All,
    Grpc,
    Http,
    Metrics,
}

/// Everything that is served, by request.
#[derive(Clone)]
pub struct Front(Arc<Inner>);

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}

struct Inner {
    calls: Calls,
    gateway: Option<Arc<Gateway>>,
    shutdown: Shutdown,
    probe: Arc<dyn Probe>,
    metrics: Arc<Metrics>,
    origins: Vec<String>,
    hosts: Vec<String>,
    client_certificates: bool,
    quota: i64,
}

/// The version told as that of the cluster: the server's without its last part.
pub(crate) fn cluster_version() -> &'static str {
    VERSION.rsplit_once('.').map_or(VERSION, |(cluster, _)| cluster)
}

impl Front {
    /// Puts it together.
    ///
    /// # Errors
    /// A setting that cannot be followed.
    pub fn new(config: &Config, app: App, shutdown: Shutdown) -> Result<Self, String> {
        let calls = Calls::new(app.grpc, Arc::clone(&app.metrics), shutdown.clone());
        let gateway = config
            .enable_grpc_gateway
            .then(|| Gateway::new(calls.clone(), config.max_request_bytes));
        let list = |text: &str| {
            text.split(',').map(|part| part.trim().to_owned()).filter(|p| !p.is_empty()).collect()
        };
        let inner = Inner {
            calls,
            gateway: gateway.transpose()?.map(Arc::new),
            shutdown,
            probe: app.probe,
            metrics: app.metrics,
            origins: list(&config.cors),
            hosts: list(&config.host_whitelist),
            client_certificates: config.client_cert_auth,
            quota: config.quota_backend_bytes,
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Answers a request.
    pub(crate) async fn handle(
        &self,
        traffic: Traffic,
        peer: &Peer,
        request: Request<Body>,
    ) -> Response<Body> {
        let kind = request.headers().get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
        let is_grpc = request.version() == Version::HTTP_2 && kind.starts_with(b"application/grpc");
        match traffic {
            Traffic::All | Traffic::Grpc if is_grpc => self.0.calls.call(request).await,
            Traffic::Grpc => text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "only gRPC is served here\n"),
            Traffic::Metrics => self.monitor(&request).unwrap_or_else(not_found),
            Traffic::All | Traffic::Http => self.guarded(peer, request).await,
        }
    }

    /// HTTP that browsers may send as well: only for known hosts, and told to which pages it may be shown.
    async fn guarded(&self, peer: &Peer, request: Request<Body>) -> Response<Body> {
        let inner = &self.0;
        if !peer.tls && !allows(&inner.hosts, host(&request)) {
            let host = host(&request).to_owned();
            warn!("rejecting HTTP request to prevent DNS rebinding attacks", "host" = host);
            let body = format!(
                "\netcd received your request, but the Host header was unrecognized.\n\nTo allow it, enable TLS, or add \
                 the host to the flag: --host-whitelist {host:?}\n\nThis is because of \"DNS Rebinding\" attacks \
                 (CVE-2018-5702).\n\n"
            );
            return text(StatusCode::MISDIRECTED_REQUEST, &body);
        }
        let origin = request.headers().get(ORIGIN).cloned();
        let mut answer = if request.method() == Method::OPTIONS {
            Response::new(Body::empty())
        } else {
            self.route(request, peer).await
        };
        self.share(answer.headers_mut(), origin);
        answer
    }

    /// Whether a page of this origin, if it is one, may see answers.
    fn may_see(&self, origin: Option<&HeaderValue>) -> bool {
        let origins = &self.0.origins;
        origin.is_none_or(|origin| origin.to_str().is_ok_and(|origin| allows(origins, origin)))
    }

    /// Tells browsers whose pages may see the answer.
    fn share(&self, headers: &mut HeaderMap, origin: Option<HeaderValue>) {
        let all = self.0.origins.iter().any(|allowed| allowed == "*");
        let known = origin
            .filter(|origin| origin.to_str().is_ok_and(|origin| allows(&self.0.origins, origin)));
        let shown = if all { Some(HeaderValue::from_static("*")) } else { known };
        let Some(shown) = shown else { return };
        let methods = HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE");
        headers.insert("access-control-allow-methods", methods);
        headers.insert("access-control-allow-origin", shown);
        let names = HeaderValue::from_static("accept, content-type, authorization");
        headers.insert("access-control-allow-headers", names);
    }

    async fn route(&self, request: Request<Body>, peer: &Peer) -> Response<Body> {
        if let Some(answer) = self.monitor(&request) {
            return answer;
        }
        let inner = &self.0;
        let path = request.uri().path();
        if path == "/version" {
            return only_get(&request).unwrap_or_else(|| {
                let cluster = format!("{}.0", cluster_version());
                let told =
                    json!({"etcdserver": VERSION, "etcdcluster": cluster, "storage": cluster});
                json_answer(StatusCode::OK, told.to_string())
            });
        }
        let path = path
            .strip_prefix("/v3beta/")
            .or_else(|| path.strip_prefix("/v3/"))
            .map(|rest| format!("/v3/{rest}"));
        let (Some(gateway), Some(path)) = (&inner.gateway, path) else { return not_found() };
        if inner.client_certificates && peer.common_name.is_some() && inner.probe.auth_enabled() {
            let body = "CommonName of client sending a request against gateway will be ignored and not used as expected\n";
            return text(StatusCode::BAD_REQUEST, body);
        }
        if socket::is_asked(&request) {
            // Nobody keeps a page from reading what comes over one, unlike the answer to a request.
            if !self.may_see(request.headers().get(ORIGIN)) {
                return text(StatusCode::FORBIDDEN, "this origin is not allowed: see --cors\n");
            }
            return socket::agree(gateway, &inner.shutdown, path, request);
        }
        gateway.handle(&path, request).await
    }

    /// What monitors ask for; none if it is something else.
    fn monitor(&self, request: &Request<Body>) -> Option<Response<Body>> {
        let path = request.uri().path();
        let known = matches!(path, "/health" | "/metrics" | "/livez" | "/readyz");
        if !known && !path.starts_with("/livez/") && !path.starts_with("/readyz/") {
            return None;
        }
        if path != "/metrics"
            && let Some(refusal) = only_get(request)
        {
            return Some(refusal);
        }
        let query = request.uri().query().unwrap_or_default();
        match path {
            "/health" => Some(self.health(query)),
            "/metrics" => Some(self.write_metrics()),
            _ => self.checks(path, query),
        }
    }

    fn health(&self, query: &str) -> Response<Body> {
        let probe = &self.0.probe;
        let alarm = probe
            .alarms()
            .into_iter()
            .find(|alarm| !values(query, "exclude").any(|name| name == *alarm));
        let reason = match alarm {
            Some(alarm) => Some(format!("ALARM {alarm}")),
            None => probe.read().err().map(|error| format!("RANGE ERROR:{error}")),
        };
        let (count, healthy) = match reason {
            None => (&self.0.metrics.healthy, "true"),
            Some(_) => (&self.0.metrics.unhealthy, "false"),
        };
        count.fetch_add(1, Ordering::Relaxed);
        let body =
            json!({"health": healthy, "reason": reason.as_deref().unwrap_or_default()}).to_string();
        if reason.is_some() {
            warn!("/health error", "output" = body, "status-code" = 503);
            return text(StatusCode::SERVICE_UNAVAILABLE, &(body + "\n"));
        }
        debug!("/health OK", "status-code" = 200);
        text(StatusCode::OK, &body)
    }

    /// `/livez` and `/readyz`, all checks or one; none if there is no such check.
    fn checks(&self, path: &str, query: &str) -> Option<Response<Body>> {
        let (group, one) = path
            .strip_prefix('/')?
            .split_once('/')
            .map_or((path.get(1..)?, None), |(a, b)| (a, Some(b)));
        let names: &[&str] = match group {
            "livez" => &["serializable_read"],
            _ => &["data_corruption", "linearizable_read", "non_learner", "serializable_read"],
        };
        let chosen: Vec<_> = match one {
            Some(one) => names.iter().filter(|name| **name == one).collect(),
            None => names
                .iter()
                .filter(|name| !values(query, "exclude").any(|out| out == **name))
                .collect(),
        };
        if one.is_some() && chosen.is_empty() {
            return None;
        }
        let (mut told, mut failed) = (String::new(), false);
        for name in chosen {
            let result = match *name {
                "data_corruption"
                    if self.0.probe.alarms().iter().any(|alarm| alarm == "CORRUPT") =>
                {
                    Err("alarm activated: CORRUPT".to_owned())
                }
                "serializable_read" | "linearizable_read" => {
                    self.0.probe.read().map_err(|e| format!("range error: {e}"))
                }
                _ => Ok(()),
            };
            failed |= result.is_err();
            told += &result.map_or_else(
                |e| format!("[-]{name} failed: {e}\n"),
                |()| format!("[+]{name} ok\n"),
            );
        }
        if failed {
            return Some(text(StatusCode::SERVICE_UNAVAILABLE, &(told + "\n")));
        }
        let verbose = values(query, "verbose").next().is_some();
        Some(text(StatusCode::OK, &(if verbose { told } else { String::new() } + "ok\n")))
    }

    fn write_metrics(&self) -> Response<Body> {
        let inner = &self.0;
        let mut out = Text::default();
        out.gauge(
            "etcd_server_has_leader",
            "Whether or not a leader exists. 1 is existence, 0 is not.",
            1,
        );
        out.gauge(
            "etcd_server_is_leader",
            "Whether or not this member is a leader. 1 if is, 0 otherwise.",
            1,
        );
        out.gauge(
            "etcd_server_is_learner",
            "Whether or not this member is a learner. 1 if is, 0 otherwise.",
            0,
        );
        out.counter(
            "etcd_server_leader_changes_seen_total",
            "The number of leader changes seen.",
            1,
        );
        out.gauge(
            "etcd_server_proposals_pending",
            "The current number of pending proposals to commit.",
            0,
        );
        out.counter(
            "etcd_server_proposals_failed_total",
            "The total number of failed proposals seen.",
            0,
        );
        out.gauge(
            "etcd_server_quota_backend_bytes",
            "Current backend storage quota size in bytes.",
            inner.quota,
        );
        let mut label = |name: &str, help: &str, label: &str, value: &str| {
            out.head(name, help, "gauge");
            out.line(name, &format!("{label}=\"{value}\""), 1);
        };
        label("etcd_server_version", "Which version is running.", "server_version", VERSION);
        label(
            "etcd_cluster_version",
            "Which version is running.",
            "cluster_version",
            cluster_version(),
        );
        let id = format!("{:x}", inner.probe.member_id());
        label("etcd_server_id", "Server or member ID in hexadecimal format.", "server_id", &id);
        label(
            "annals_version",
            "Which version of annals-etcd is running.",
            "version",
            env!("CARGO_PKG_VERSION"),
        );
        if let Some(keys) = inner.probe.keys() {
            out.gauge("etcd_debugging_mvcc_keys_total", "Total number of keys.", keys);
        }
        inner.metrics.write(&mut out);
        if let Some(stats) = inner.probe.stats() {
            out.stats(&stats);
        }
        inner.probe.write_metrics(&mut out);
        let mut answer = Response::new(Body::from(out.finish()));
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        answer
    }
}

/// Whether a list of names holds this one, or all.
fn allows(list: &[String], name: &str) -> bool {
    list.is_empty() || list.iter().any(|allowed| allowed == "*" || allowed == name)
}

/// The host by whose name a request came, without its port.
fn host(request: &Request<Body>) -> &str {
    let named = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let whole = named
        .or_else(|| request.uri().authority().map(http::uri::Authority::as_str))
        .unwrap_or_default();
    match whole.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => {
            host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
        }
        _ => whole,
    }
}

/// The values of a name in a query. As Go reads it, what has a semicolon or a wrong escape is none.
fn values(query: &str, name: &str) -> impl Iterator<Item = String> {
    query
        .split('&')
        .filter(|part| !part.contains(';'))
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .filter(move |(of, _)| unescaped(of).is_some_and(|of| of == name))
        .filter_map(|(_, value)| unescaped(value))
}

/// A part of a query without its escapes.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? << 4 | digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn only_get(request: &Request<Body>) -> Option<Response<Body>> {
    if request.method() == Method::GET {
        return None;
    }
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
    Some(answer)
}

fn not_found() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

fn text(status: StatusCode, body: &str) -> Response<Body> {
    let mut answer = Response::new(Body::from(body.to_owned()));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    answer
}

/// An answer of JSON.
pub(crate) fn json_answer(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
