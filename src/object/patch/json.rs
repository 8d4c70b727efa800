//! JSON patch: RFC 6902.
//!
//! The operations are those of the crate `json-patch`; here are its limits and what it does otherwise than the
//! RFC or than a Kubernetes API server answers: operations that cannot be read are 422 and not 400, numbers are
//! equal where they are the same number (`1` and `1.0`), and what is copied and nested is bounded.
//!
//! Where the API server departs from the RFC, this does not: an index counts from the beginning and never from
//! the end (`-1`), `replace` needs something to replace, an absent member is not null, and `add` without a value
//! is no `add`.

use std::io;

use json_patch::jsonptr::{Pointer, PointerBuf};
use json_patch::{
    AddOperation, CopyOperation, MoveOperation, PatchErrorKind, PatchOperation, RemoveOperation,
    ReplaceOperation,
};
use serde_json::{Map, Value};

use super::{DEPTH_MAX, depth, read, shown, too_large};
use crate::object::status::{Result, Status};

/// How many operations a patch may have.
const OPERATIONS_MAX: usize = 10_000;

/// How many bytes of JSON the `copy` operations of a patch may copy together.
const COPIED_BYTES_MAX: usize = 3 << 20;

/// How many steps the operations of a patch may take together that are more than reading the patch: items of lists
/// that give way to another, and values below one that is moved deeper. So 10,000 operations on a list of 10,000
/// items can be done, and as many on one of a million, which would take a minute, cannot.
const STEPS_MAX: usize = 100_000_000;

/// The document as the operations of a JSON patch make it: all of them, or none.
///
/// ```
/// use annals::object::json_patch;
/// use serde_json::json;
///
/// let pod = json!({"spec": {"containers": [{"name": "web", "image": "web:1"}]}});
/// let patch = br#"[
///     {"op": "test", "path": "/spec/containers/0/name", "value": "web"},
///     {"op": "replace", "path": "/spec/containers/0/image", "value": "web:2"},
///     {"op": "add", "path": "/spec/containers/1", "value": {"name": "log"}}
/// ]"#;
/// let patched = json_patch(&pod, patch)?;
/// assert_eq!(patched["spec"]["containers"], json!([
///     {"name": "web", "image": "web:2"},
///     {"name": "log"},
/// ]));
/// # Ok::<(), annals::object::Status>(())
/// ```
///
/// Costs a copy of the document, and per operation its path, its value, and the items of a list behind one that is
/// added or removed.
///
/// # Errors
///
/// 400 for what is not a list of objects, 413 for more than 10,000 operations or 3 MiB, 422 where an operation
/// cannot be applied: a path that is not there, a test that fails, an unknown operation, more than 3 MiB copied,
/// more than 100,000,000 items of lists moved by others that are added and removed, or what would nest deeper than
/// can be read again.
pub fn json_patch(document: &Value, patch: &[u8]) -> Result<Value> {
    let not_a_patch =
        || Status::bad_request("error decoding patch: it is not a list of operations");
    let Value::Array(operations) = read(patch)? else { return Err(not_a_patch()) };
    if operations.len() > OPERATIONS_MAX {
        let got = operations.len();
        return Err(too_large(&format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {got}"
        )));
    }
    if !operations.iter().all(Value::is_object) {
        return Err(not_a_patch());
    }
    let mut patching = Patching { document: document.clone(), copied_bytes: 0, steps: 0 };
    for operation in operations {
        if let Value::Object(operation) = operation {
            patching.apply(operation)?;
        }
    }
    Ok(patching.document)
}

/// A document on its way.
struct Patching {
    document: Value,
    copied_bytes: usize,
    steps: usize,
}

impl Patching {
    fn apply(&mut self, mut operation: Map<String, Value>) -> Result<()> {
        let kind = match operation.remove("op") {
            Some(Value::String(kind)) => kind,
            _ => "unknown".into(),
        };
        let path = pointer(&operation, &kind, "path");
        match kind.as_str() {
            "add" => {
                let (path, value) = (path?, value(operation, &kind)?);
                check_depth(&path, &value)?;
                self.take(self.items_behind(&path))?;
                self.run(&kind, PatchOperation::Add(AddOperation { path, value }))
            }
            "replace" => {
                let (path, value) = (path?, value(operation, &kind)?);
                check_depth(&path, &value)?;
                self.run(&kind, PatchOperation::Replace(ReplaceOperation { path, value }))
            }
            "remove" => {
                let path = path?;
                self.take(self.items_behind(&path))?;
                self.run(&kind, PatchOperation::Remove(RemoveOperation { path }))
            }
            "move" => {
                let (path, from) = (path?, pointer(&operation, &kind, "from")?);
                if path.count() > from.count() {
                    let source = self.find(&kind, &from)?;
                    check_depth(&path, source)?;
                    self.take(values(source))?;
                }
                self.take(self.items_behind(&from).saturating_add(self.items_behind(&path)))?;
                self.run(&kind, PatchOperation::Move(MoveOperation { from, path }))
            }
            "copy" => {
                let (path, from) = (path?, pointer(&operation, &kind, "from")?);
                let source = self.find(&kind, &from)?;
                check_depth(&path, source)?;
                self.copied_bytes = self.copied_bytes.saturating_add(bytes(source));
                if self.copied_bytes > COPIED_BYTES_MAX {
                    return Err(Status::unprocessable(format!(
                        "Unable to complete the copy, the accumulated size increase of copy is {}, \
                         exceeding the limit {COPIED_BYTES_MAX}",
                        self.copied_bytes
                    )));
                }
                self.take(self.items_behind(&path))?;
                self.run(&kind, PatchOperation::Copy(CopyOperation { from, path }))
            }
            "test" => {
                let (path, value) = (path?, value(operation, &kind)?);
                if is_equal(self.find(&kind, &path)?, &value) {
                    return Ok(());
                }
                let path = shown(&path);
                Err(Status::unprocessable(format!("testing value {path} failed: test failed")))
            }
            _ => Err(Status::unprocessable(format!("Unexpected kind: {}", shown(&kind)))),
        }
    }

    fn run(&mut self, kind: &str, operation: PatchOperation) -> Result<()> {
        let path = operation.path().to_owned();
        json_patch::patch_unsafe(&mut self.document, &[operation]).map_err(|error| {
            match error.kind {
                PatchErrorKind::CannotMoveInsideItself => Status::unprocessable(format!(
                    "{kind} operation does not apply: a value cannot be moved into itself: {}",
                    shown(&path)
                )),
                _ => missing(kind, &path),
            }
        })
    }

    /// Steps that an operation is going to take.
    fn take(&mut self, steps: usize) -> Result<()> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps <= STEPS_MAX {
            return Ok(());
        }
        let message = format!("the operations of the patch take more than {STEPS_MAX} steps");
        Err(Status::unprocessable(message))
    }

    /// How many items of a list stand at or behind a place in it.
    fn items_behind(&self, path: &Pointer) -> usize {
        let list = path.split_back().and_then(|(list, place)| {
            let place: usize = place.encoded().parse().ok()?;
            Some(self.document.pointer(list.as_str())?.as_array()?.len().saturating_sub(place))
        });
        list.unwrap_or_default()
    }

    fn find(&self, kind: &str, path: &Pointer) -> Result<&Value> {
        self.document.pointer(path.as_str()).ok_or_else(|| missing(kind, path))
    }
}

fn missing(kind: &str, path: &Pointer) -> Status {
    Status::unprocessable(format!(
        "{kind} operation does not apply: doc is missing path: \"{}\": missing value",
        shown(&path)
    ))
}

/// A member of an operation that is a JSON pointer (RFC 6901).
fn pointer(operation: &Map<String, Value>, kind: &str, member: &str) -> Result<PointerBuf> {
    let failed = |why: &str| {
        Status::unprocessable(format!("{kind} operation failed to decode {member}: {why}"))
    };
    match operation.get(member) {
        Some(Value::String(pointer)) => PointerBuf::parse(pointer.as_str())
            .map_err(|_| failed(&format!("not a JSON pointer: {:?}", shown(pointer)))),
        Some(_) => Err(failed("not a string")),
        None => Err(failed("missing value")),
    }
}

fn value(mut operation: Map<String, Value>, kind: &str) -> Result<Value> {
    operation.remove("value").ok_or_else(|| {
        Status::unprocessable(format!("{kind} operation failed to decode value: missing value"))
    })
}

/// Refuses what could not be read again.
fn check_depth(path: &Pointer, value: &Value) -> Result<()> {
    if path.count().saturating_add(depth(value)) <= DEPTH_MAX {
        return Ok(());
    }
    let message = format!("the patched object would nest deeper than {DEPTH_MAX}");
    Err(Status::unprocessable(message))
}

/// How many values there are in a value, with itself.
fn values(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(values).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(values).sum::<usize>(),
        _ => 1,
    }
}

/// How many bytes the value has as JSON.
fn bytes(value: &Value) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Neither writing to a count nor the value of a document can fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Equal as RFC 6902 says it in 4.6: numbers by their value, members in any order.
fn is_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let is_whole = |number: &serde_json::Number| number.is_i64() || number.is_u64();
            // Two whole numbers are compared exactly: as floating-point numbers large ones would become equal.
            // One that is no floating-point number is there where numbers are kept as they are written.
            let is_exact = (is_whole(a) && is_whole(b)) || a.as_f64().is_none();
            if is_exact { a == b } else { a.as_f64() == b.as_f64() }
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let is_in_b =
                |(name, a): (&String, &Value)| b.get(name).is_some_and(|b| is_equal(a, b));
            a.len() == b.len() && a.iter().all(is_in_b)
        }
        (a, b) => a == b,
    }
}
