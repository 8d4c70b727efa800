//! How one value became another: member by member where both are JSON, line by line where both are text.

use std::fmt::Write as _;

use serde_json::{Value, json};
use similar::TextDiff;

use crate::bytes::{show_beside, show_line};

/// Characters of a line or of a member's value that people see.
const WIDTH: usize = 120;

/// Lines around a change.
const CONTEXT: usize = 2;

/// What is different.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Delta {
    /// Nothing.
    Same,
    /// Members of a JSON document.
    Json(Vec<Member>),
    /// Lines, as a unified diff.
    Text(String),
    /// Bytes: how many there were, how many there are, and how many agree from the first on.
    Bytes { old: usize, new: usize, same: usize },
}

/// A member of a JSON document that is different, by its JSON pointer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Member {
    path: String,
    old: Option<Value>,
    new: Option<Value>,
}

impl Delta {
    /// Compares two values.
    pub(super) fn of(old: &[u8], new: &[u8]) -> Self {
        if old == new {
            return Self::Same;
        }
        if let (Some(before), Some(after)) = (document(old), document(new)) {
            let mut members = Vec::new();
            compare("", &before, &after, &mut members);
            // Else only what JSON does not tell apart is different: show it as it is.
            if !members.is_empty() {
                return Self::Json(members);
            }
        }
        if let (Ok(old), Ok(new)) = (std::str::from_utf8(old), std::str::from_utf8(new)) {
            let diff = TextDiff::from_lines(old, new);
            let text =
                diff.unified_diff().context_radius(CONTEXT).missing_newline_hint(false).to_string();
            return Self::Text(text);
        }
        let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
        Self::Bytes { old: old.len(), new: new.len(), same }
    }

    /// For people, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        match self {
            Self::Same => vec!["(the same value)".to_owned()],
            Self::Json(members) => members.iter().map(Member::line).collect(),
            Self::Text(text) => {
                text.lines().map(|line| show_line(line.as_bytes(), WIDTH)).collect()
            }
            Self::Bytes { old, new, same } => {
                vec![format!("{old} bytes became {new}; the first {same} are the same")]
            }
        }
    }

    /// For programs.
    pub(super) fn form(&self) -> Value {
        match self {
            Self::Same => json!({ "form": "same" }),
            Self::Json(members) => {
                let members: Vec<Value> = members.iter().map(Member::form).collect();
                json!({ "form": "json", "members": members })
            }
            Self::Text(text) => json!({ "form": "text", "unified": text }),
            Self::Bytes { old, new, same } => {
                json!({ "form": "bytes", "old_bytes": old, "new_bytes": new, "same_bytes": same })
            }
        }
    }
}

impl Member {
    fn line(&self) -> String {
        let path = if self.path.is_empty() { "(all)" } else { &self.path };
        let path = show_beside(path.as_bytes(), WIDTH, " ");
        let text = |value: &Value| show_line(value.to_string().as_bytes(), WIDTH);
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => format!("~ {path}: {} -> {}", text(old), text(new)),
            (None, Some(new)) => format!("+ {path}: {}", text(new)),
            (old, None) => format!("- {path}: {}", old.as_ref().map(text).unwrap_or_default()),
        }
    }

    fn form(&self) -> Value {
        let mut form = json!({ "path": self.path });
        for (name, side) in [("old", &self.old), ("new", &self.new)] {
            if let Some(side) = side {
                form[name] = side.clone();
            }
        }
        form
    }
}

/// A JSON object or array. A bare number or word is more of a text.
fn document(bytes: &[u8]) -> Option<Value> {
    let begins = bytes.iter().find(|byte| !byte.is_ascii_whitespace())?;
    matches!(begins, b'{' | b'[').then(|| serde_json::from_slice(bytes).ok()).flatten()
}

fn compare(path: &str, old: &Value, new: &Value, members: &mut Vec<Member>) {
    let at = |name: &str| {
        let mut path = path.to_owned();
        // As RFC 6901 spells a pointer.
        let _ = write!(path, "/{}", name.replace('~', "~0").replace('/', "~1"));
        path
    };
    let mut side = |path: String, old: Option<&Value>, new: Option<&Value>| match (old, new) {
        (Some(old), Some(new)) => compare(&path, old, new, members),
        (old, new) => members.push(Member { path, old: old.cloned(), new: new.cloned() }),
    };
    match (old, new) {
        _ if old == new => {}
        (Value::Object(before), Value::Object(after)) => {
            for (name, old) in before {
                side(at(name), Some(old), after.get(name));
            }
            for (name, new) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
                side(at(name), None, Some(new));
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for index in 0..before.len().max(after.len()) {
                side(at(&index.to_string()), before.get(index), after.get(index));
            }
        }
        _ => members.push(Member {
            path: path.to_owned(),
            old: Some(old.clone()),
            new: Some(new.clone()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_compared_by_their_members() {
        let old = br#"{"image": "app:1", "replicas": 2, "a/b": [1, 2, 3], "gone": null}"#;
        let new = br#"{"replicas": 3, "image": "app:1", "a/b": [1, 5], "more": {"x": 1}}"#;
        let lines = Delta::of(old, new).lines();
        let expected = [
            "~ /replicas: 2 -> 3",
            "~ /a~1b/1: 2 -> 5",
            "- /a~1b/2: 3",
            "- /gone: null",
            "+ /more: {\"x\":1}",
        ];
        assert_eq!(lines, expected);
        let form = Delta::of(b"[1]", b"[1, null]").form();
        assert_eq!(form, json!({ "form": "json", "members": [{ "path": "/1", "new": null }] }));
        assert_eq!(Delta::of(b"{}", b"[]").lines(), ["~ (all): {} -> []"]);
    }

    #[test]
    fn texts_by_their_lines_and_the_rest_by_their_bytes() {
        let Delta::Text(text) = Delta::of(b"a\nb\nc\nd\ne\n", b"a\nb\nc\nD\ne\n") else { panic!() };
        assert_eq!(text, "@@ -2,4 +2,4 @@\n b\n c\n-d\n+D\n e\n");
        assert_eq!(Delta::of(b"off", b"on").lines().last().unwrap(), "+on");
        // What only spaces tell apart in JSON is still told apart.
        assert!(matches!(Delta::of(b"{}", b"{ }"), Delta::Text(_)));
        assert!(matches!(Delta::of(b"1", b"2"), Delta::Text(_)));
        let bytes = Delta::Bytes { old: 2, new: 3, same: 1 };
        assert_eq!(Delta::of(b"a\xff", b"abc"), bytes);
        assert_eq!(Delta::of(b"same", b"same"), Delta::Same);
        let lines = Delta::of(b"\x1b[2J", b"x\n").lines();
        assert!(lines.iter().all(|line| !line.contains('\x1b')), "{lines:?}");
    }
}
