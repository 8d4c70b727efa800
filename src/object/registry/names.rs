//! Which names objects, namespaces and finalizers may have, in the words of `k8s.io/apimachinery`.

use crate::object::selector::validate::dns_subdomain;

/// Which names objects of a kind may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameRule {
    /// Everything that can stand in a path: neither `.` nor `..`, without `/` and `%`.
    PathSegment,
    /// DNS subdomains (RFC 1123), as `web.example`.
    DnsSubdomain,
    /// DNS labels (RFC 1123), as `web-1`.
    DnsLabel,
    /// DNS labels that begin with a letter (RFC 1035), as services have them.
    Dns1035Label,
}

const LABEL_MAX: usize = 63;
const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
                          must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used \
                          for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS_1035_RULE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                             alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or \
                             'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

impl NameRule {
    /// What is wrong with a name; empty where nothing is. What is the beginning of a name only (`is_prefix`) may end with a
    /// dash.
    pub fn wrong(self, name: &str, is_prefix: bool) -> Vec<String> {
        if self == Self::PathSegment {
            return path_segment(name, is_prefix);
        }
        // The name that will be looks as if the dash and what stands before it were a letter.
        let masked = match name.strip_suffix('-') {
            Some(rest) if is_prefix && !rest.is_empty() => {
                let end = rest.char_indices().next_back().map_or(0, |(at, _)| at);
                format!("{}a", &rest[..end])
            }
            _ => name.to_owned(),
        };
        match self {
            Self::DnsLabel => dns_label(&masked),
            Self::Dns1035Label => dns_1035_label(&masked),
            Self::DnsSubdomain | Self::PathSegment => {
                dns_subdomain(&masked).into_iter().map(|why| characters(&why)).collect()
            }
        }
    }
}

/// The rules of names count characters, those of labels bytes; both mean ASCII.
fn characters(why: &str) -> String {
    match why.strip_prefix("must be no more than").and_then(|why| why.strip_suffix("bytes")) {
        Some(count) => format!("must be no more than{count}characters"),
        None => why.to_owned(),
    }
}

fn is_label(name: &str, is_first: fn(&u8) -> bool) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    bytes.first().is_some_and(is_first)
        && bytes.last().is_some_and(is_inner)
        && bytes.iter().all(|byte| is_inner(byte) || *byte == b'-')
}

fn too_long(name: &str) -> Vec<String> {
    if name.len() > LABEL_MAX {
        vec![format!("must be no more than {LABEL_MAX} characters")]
    } else {
        Vec::new()
    }
}

fn dns_label(name: &str) -> Vec<String> {
    let mut wrong = too_long(name);
    if !is_label(name, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
        // What would be right with dots has them.
        let is_subdomain = dns_subdomain(name).iter().all(|why| why.starts_with("must be no more"));
        wrong.push(if is_subdomain { "must not contain dots" } else { LABEL_RULE }.into());
    }
    wrong
}

fn dns_1035_label(name: &str) -> Vec<String> {
    let mut wrong = too_long(name);
    if !is_label(name, u8::is_ascii_lowercase) {
        wrong.push(DNS_1035_RULE.into());
    }
    wrong
}

/// What keeps a name from being a part of a path.
pub(super) fn path_segment(name: &str, is_prefix: bool) -> Vec<String> {
    if !is_prefix && (name == "." || name == "..") {
        return vec![format!("may not be '{name}'")];
    }
    let illegal = ["/", "%"].into_iter().filter(|part| name.contains(part));
    illegal.map(|part| format!("may not contain '{part}'")).collect()
}
