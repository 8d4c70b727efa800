//! Objects in protocol buffers: `kubectl create namespace`, `configmap` and `deployment` send theirs in no other form.
//!
//! Whoever serves kinds of his own needs none of this: clients send those in JSON. Of Kubernetes' own kinds there are
//! the fields here that these commands set; any other is refused, and not passed over.

use annals::object::{Reason, Result, Status};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

/// What stands before an object.
const MAGIC: &[u8] = b"k8s\0";

/// A message: number, name and form of its fields.
type Message = &'static [(u64, &'static str, Form)];

/// What a field is in JSON. Where it is empty or zero, it has not been said, but for a count.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Number,
    Count,
    Flag,
    /// A map of texts to texts.
    Texts,
    /// A map of texts to bytes.
    Blobs,
    /// A list of texts.
    List,
    Object(Message),
    Objects(Message),
    /// What the server decides.
    Ignored,
}

const METADATA: Message = &[
    (1, "name", Form::Text),
    (2, "generateName", Form::Text),
    (3, "namespace", Form::Text),
    (4, "selfLink", Form::Ignored),
    (5, "uid", Form::Text),
    (6, "resourceVersion", Form::Text),
    (7, "generation", Form::Ignored),
    (8, "creationTimestamp", Form::Ignored),
    (11, "labels", Form::Texts),
    (12, "annotations", Form::Texts),
    (14, "finalizers", Form::List),
];

const NAMESPACE: Message = &[
    (1, "metadata", Form::Object(METADATA)),
    (2, "spec", Form::Object(&[(1, "finalizers", Form::List)])),
    (3, "status", Form::Ignored),
];

const CONFIG_MAP: Message = &[
    (1, "metadata", Form::Object(METADATA)),
    (2, "data", Form::Texts),
    (3, "binaryData", Form::Blobs),
    (4, "immutable", Form::Flag),
];

const PORT: Message = &[
    (1, "name", Form::Text),
    (2, "hostPort", Form::Number),
    (3, "containerPort", Form::Number),
    (4, "protocol", Form::Text),
    (5, "hostIP", Form::Text),
];

const CONTAINER: Message = &[
    (1, "name", Form::Text),
    (2, "image", Form::Text),
    (3, "command", Form::List),
    (4, "args", Form::List),
    (5, "workingDir", Form::Text),
    (6, "ports", Form::Objects(PORT)),
    (8, "resources", Form::Object(&[])),
    (13, "terminationMessagePath", Form::Text),
    (14, "imagePullPolicy", Form::Text),
    (16, "stdin", Form::Flag),
    (17, "stdinOnce", Form::Flag),
    (18, "tty", Form::Flag),
    (20, "terminationMessagePolicy", Form::Text),
];

const POD_SPEC: Message = &[
    (2, "containers", Form::Objects(CONTAINER)),
    (3, "restartPolicy", Form::Text),
    (6, "dnsPolicy", Form::Text),
    (7, "nodeSelector", Form::Texts),
    (8, "serviceAccountName", Form::Text),
    (9, "serviceAccount", Form::Text),
    (10, "nodeName", Form::Text),
    (11, "hostNetwork", Form::Flag),
    (12, "hostPID", Form::Flag),
    (13, "hostIPC", Form::Flag),
    (16, "hostname", Form::Text),
    (17, "subdomain", Form::Text),
    (19, "schedulerName", Form::Text),
    (20, "initContainers", Form::Objects(CONTAINER)),
    (24, "priorityClassName", Form::Text),
];

const DEPLOYMENT: Message = &[
    (1, "metadata", Form::Object(METADATA)),
    (
        2,
        "spec",
        Form::Object(&[
            (1, "replicas", Form::Count),
            (2, "selector", Form::Object(&[(1, "matchLabels", Form::Texts)])),
            (
                3,
                "template",
                Form::Object(&[
                    (1, "metadata", Form::Object(METADATA)),
                    (2, "spec", Form::Object(POD_SPEC)),
                ]),
            ),
            (4, "strategy", Form::Object(&[(1, "type", Form::Text)])),
            (5, "minReadySeconds", Form::Number),
            (6, "revisionHistoryLimit", Form::Count),
            (7, "paused", Form::Flag),
            (9, "progressDeadlineSeconds", Form::Count),
        ]),
    ),
    (3, "status", Form::Ignored),
];

/// The JSON of an object.
pub(crate) fn json(body: &[u8]) -> Result<Value> {
    let unknown = body.strip_prefix(MAGIC).ok_or_else(|| refused("it does not begin as one"))?;
    let envelope = Fields(unknown).collect::<Result<Vec<_>>>()?;
    let part = |number| {
        let mut parts = envelope.iter().filter(|field| field.0 == number);
        parts.next().map_or(Ok(&[][..]), |(_, wire)| wire.bytes())
    };
    let kind = read(&[(1, "apiVersion", Form::Text), (2, "kind", Form::Text)], part(1)?)?;
    let message = match (kind["apiVersion"].as_str(), kind["kind"].as_str()) {
        (Some("v1"), Some("Namespace")) => NAMESPACE,
        (Some("v1"), Some("ConfigMap")) => CONFIG_MAP,
        (Some("apps/v1"), Some("Deployment")) => DEPLOYMENT,
        _ => return Err(refused(&format!("of {kind} there is no description"))),
    };
    let mut object = read(message, part(2)?)?;
    object["apiVersion"] = kind["apiVersion"].clone();
    object["kind"] = kind["kind"].clone();
    Ok(object)
}

fn refused(why: &str) -> Status {
    let message =
        format!("the body of the request is no protocol buffer that is known here: {why}");
    Status::new(Reason::UnsupportedMediaType, message)
}

/// A message as an object.
fn read(message: Message, bytes: &[u8]) -> Result<Value> {
    let mut object = Map::new();
    for field in Fields(bytes) {
        let (number, wire) = field?;
        let Some((_, name, form)) = message.iter().find(|field| field.0 == number) else {
            return Err(refused(&format!("there is a field {number} that has no name here")));
        };
        let value = match form {
            Form::Text => text(wire.bytes()?)?.into(),
            Form::Number | Form::Count => wire.number()?.into(),
            Form::Flag => (wire.number()? != 0).into(),
            Form::Object(message) => read(message, wire.bytes()?)?,
            Form::Ignored => continue,
            Form::List => {
                push(&mut object, name, text(wire.bytes()?)?.into());
                continue;
            }
            Form::Objects(message) => {
                push(&mut object, name, read(message, wire.bytes()?)?);
                continue;
            }
            Form::Texts | Form::Blobs => {
                let (key, value) = entry(wire.bytes()?)?;
                let value = match form {
                    Form::Blobs => BASE64.encode(value),
                    _ => text(value)?,
                };
                let map = object.entry(*name).or_insert_with(|| json!({}));
                if let Some(map) = map.as_object_mut() {
                    map.insert(key, value.into());
                }
                continue;
            }
        };
        let is_said =
            matches!(form, Form::Count) || ![json!(""), json!(0), json!(false)].contains(&value);
        if is_said {
            object.insert((*name).into(), value);
        }
    }
    Ok(object.into())
}

fn push(object: &mut Map<String, Value>, name: &str, item: Value) {
    let list = object.entry(name).or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut() {
        list.push(item);
    }
}

/// An entry of a map: its key, and its value.
fn entry(bytes: &[u8]) -> Result<(String, &[u8])> {
    let (mut key, mut value) = (String::new(), &[][..]);
    for field in Fields(bytes) {
        match field? {
            (1, wire) => key = text(wire.bytes()?)?,
            (2, wire) => value = wire.bytes()?,
            _ => return Err(refused("an entry of a map has a third part")),
        }
    }
    Ok((key, value))
}

fn text(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| refused("a text is not UTF-8"))
}

/// A field as it is on the wire.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    fn bytes(self) -> Result<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err(refused("there is a number where there should be a text")),
        }
    }

    fn number(self) -> Result<i64> {
        match self {
            Self::Number(number) => Ok(number.cast_signed()),
            Self::Bytes(_) => Err(refused("there is a text where there should be a number")),
        }
    }
}

/// The fields of a message, one after the other, up to the first that cannot be read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for at in 0..10 {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f).checked_shl(7 * at)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn field(&mut self) -> Option<(u64, Wire<'a>)> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Wire::Bytes(bytes)
            }
            // No kind here has others.
            _ => return None,
        };
        Some((tag >> 3, wire))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Wire<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| refused("it ends too early, or is damaged")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).expect("a short one");
        [&[number << 3 | 2, length], bytes].concat()
    }

    fn object(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let of = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &of), &field(2, raw)].concat()
    }

    #[test]
    fn what_kubectl_creates_is_read() {
        let labels = field(11, &[field(1, b"a"), field(2, b"b")].concat());
        let metadata = [field(1, b"c"), field(2, b""), vec![7 << 3, 0], field(8, b""), labels];
        let blob = field(3, &[field(1, b"k"), field(2, &[0, 255])].concat());
        let raw = [field(1, &metadata.concat()), blob, vec![4 << 3, 1]].concat();
        let expected = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": {"a": "b"}},
            "binaryData": {"k": "AP8="}, "immutable": true,
        });
        assert_eq!(json(&object("v1", "ConfigMap", &raw)).expect("an object"), expected);
        let spec = field(2, &[vec![1 << 3, 0], field(2, b""), field(4, b"")].concat());
        let expected = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "spec": {"replicas": 0, "selector": {}, "strategy": {}},
        });
        assert_eq!(json(&object("apps/v1", "Deployment", &spec)).expect("an object"), expected);
    }

    #[test]
    fn what_is_not_known_or_damaged_is_refused() {
        let whole = object("v1", "Namespace", &field(1, &field(1, b"shop")));
        assert_eq!(json(&whole).expect("an object")["metadata"]["name"], "shop");
        for length in 0..whole.len() {
            // Cut between two fields, it is another message, but not this one.
            let cut = json(&whole[..length]);
            assert!(cut.is_err() || cut.is_ok_and(|cut| cut["metadata"].is_null()), "{length}");
        }
        let unknown = object("v1", "Namespace", &field(9, b"x"));
        let number = object("v1", "Namespace", &[1 << 3, 1]);
        let long = object("v1", "Namespace", &[0xff; 11]);
        let fixed = object("v1", "Namespace", &[1 << 3 | 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        let latin = object("v1", "Namespace", &field(1, &field(1, &[0xff])));
        for bad in [unknown, number, long, fixed, latin, object("v1", "Pod", b""), b"{}".to_vec()] {
            assert_eq!(json(&bad).expect_err("it is refused").code(), 415);
        }
    }
}
