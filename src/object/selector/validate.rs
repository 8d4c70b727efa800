//! What may be the key and the value of a label: checks without regular expressions, messages as
//! `k8s.io/apimachinery/pkg/api/validate/content` words them.

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
const NAME_LENGTH_MAX: usize = 63;
const SUBDOMAIN_LENGTH_MAX: usize = 253;

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
                wrong.extend(dns_subdomain(prefix).iter().map(|why| format!("prefix part {why}")));
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
    } else if name.len() > NAME_LENGTH_MAX {
        wrong.push(format!("name part {}", too_long(NAME_LENGTH_MAX)));
    }
    if !is_name(name) {
        let rule = not_matching(KEY_RULE, KEY_FORMAT, &["MyName", "my.name", "123-abc"]);
        wrong.push(format!("name part {rule}"));
    }
    wrong
}

/// What is wrong with the value of a label; empty where nothing is.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > NAME_LENGTH_MAX {
        wrong.push(too_long(NAME_LENGTH_MAX));
    }
    if !value.is_empty() && !is_name(value) {
        let format = format!("({KEY_FORMAT})?");
        wrong.push(not_matching(VALUE_RULE, &format, &["MyValue", "my_value", "12345"]));
    }
    wrong
}

/// What is wrong with a DNS subdomain (RFC 1123) in lower case; empty where nothing is.
pub(crate) fn dns_subdomain(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > SUBDOMAIN_LENGTH_MAX {
        wrong.push(too_long(SUBDOMAIN_LENGTH_MAX));
    }
    let is_label = |label: &str| {
        let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = label.as_bytes();
        bytes.first().is_some_and(is_end)
            && bytes.last().is_some_and(is_end)
            && bytes.iter().all(|byte| is_end(byte) || *byte == b'-')
    };
    if !text.split('.').all(is_label) {
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

fn too_long(length_max: usize) -> String {
    format!("must be no more than {length_max} bytes")
}

fn not_matching(rule: &str, format: &str, examples: &[&str]) -> String {
    let examples: Vec<_> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{format}')", examples.join(" or "))
}
