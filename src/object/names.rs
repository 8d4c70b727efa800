//! Which names objects, namespaces and finalizers may have, and what may be the key and the value of a label: checks
//! without regular expressions, in the words of `k8s.io/apimachinery`.

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

const KEY_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and \
                        end with an alphanumeric character";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric \
                          characters, '-', '_' or '.', and must start and end with an alphanumeric \
                          character";
const SUBDOMAIN_FORMAT: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                              characters, '-' or '.', and must start and end with an alphanumeric \
                              character";
const LABEL_LENGTH_MAX: usize = 63;
const SUBDOMAIN_LENGTH_MAX: usize = 253;
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
            Self::DnsSubdomain | Self::PathSegment => dns_subdomain(&masked, "characters"),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "slices hand out references")]
fn is_inner(byte: &u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(name: &str, is_first: fn(&u8) -> bool) -> bool {
    let bytes = name.as_bytes();
    bytes.first().is_some_and(is_first)
        && bytes.last().is_some_and(is_inner)
        && bytes.iter().all(|byte| is_inner(byte) || *byte == b'-')
}

fn dns_label(name: &str) -> Vec<String> {
    let mut wrong = too_long(name, LABEL_LENGTH_MAX, "characters");
    if !is_label(name, is_inner) {
        // What would be right with dots has them.
        let wrong_subdomain = dns_subdomain(name, "characters");
        let is_subdomain = wrong_subdomain.iter().all(|why| why.starts_with("must be no more"));
        wrong.push(if is_subdomain { "must not contain dots" } else { LABEL_RULE }.into());
    }
    wrong
}

fn dns_1035_label(name: &str) -> Vec<String> {
    let mut wrong = too_long(name, LABEL_LENGTH_MAX, "characters");
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

/// What is wrong with the key of a label, which is a name behind an optional prefix that is a DNS
/// subdomain: `app`, `example.com/app`. Empty where nothing is.
pub(crate) fn label_key(key: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut parts = key.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".into());
            } else {
                let of_prefix = dns_subdomain(prefix, "bytes");
                wrong.extend(of_prefix.iter().map(|why| format!("prefix part {why}")));
            }
            name
        }
        _ => {
            let rule = not_matching(KEY_RULE, KEY_FORMAT, &["MyName", "my.name", "123-abc"]);
            wrong.push(format!(
                "a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            ));
            return wrong;
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".into());
    }
    let of_name = too_long(name, LABEL_LENGTH_MAX, "bytes");
    wrong.extend(of_name.iter().map(|why| format!("name part {why}")));
    if !is_name(name) {
        let rule = not_matching(KEY_RULE, KEY_FORMAT, &["MyName", "my.name", "123-abc"]);
        wrong.push(format!("name part {rule}"));
    }
    wrong
}

/// What is wrong with the value of a label; empty where nothing is.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, LABEL_LENGTH_MAX, "bytes");
    if !value.is_empty() && !is_name(value) {
        let format = format!("({KEY_FORMAT})?");
        wrong.push(not_matching(VALUE_RULE, &format, &["MyValue", "my_value", "12345"]));
    }
    wrong
}

/// What is wrong with a DNS subdomain (RFC 1123) in lower case; empty where nothing is.
fn dns_subdomain(text: &str, unit: &str) -> Vec<String> {
    let mut wrong = too_long(text, SUBDOMAIN_LENGTH_MAX, unit);
    if !text.split('.').all(|label| is_label(label, is_inner)) {
        wrong.push(not_matching(SUBDOMAIN_RULE, SUBDOMAIN_FORMAT, &["example.com"]));
    }
    wrong
}

/// Letters, digits, `-`, `_` and `.`, the first and the last a letter or a digit.
fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// The rules of names count characters, those of labels bytes; both mean ASCII.
fn too_long(text: &str, length_max: usize, unit: &str) -> Vec<String> {
    if text.len() > length_max {
        vec![format!("must be no more than {length_max} {unit}")]
    } else {
        Vec::new()
    }
}

fn not_matching(rule: &str, format: &str, examples: &[&str]) -> String {
    let examples: Vec<_> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{format}')", examples.join(" or "))
}
