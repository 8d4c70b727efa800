//! Objects as tables, and as their metadata: what a client says in `Accept` that it wants to see of them.

use annals::object::{List, meta};
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::Served;

/// A column of a table: its name, and what is in it.
pub(crate) struct Column {
    name: &'static str,
    /// Whether it is for those who ask for more: `kubectl get -o wide`.
    is_wide: bool,
    cell: fn(&Value) -> Value,
}

impl Column {
    pub(crate) const fn new(name: &'static str, cell: fn(&Value) -> Value) -> Self {
        Self { name, is_wide: false, cell }
    }

    pub(crate) const fn wide(self) -> Self {
        Self { is_wide: true, ..self }
    }

    fn definition(&self) -> Value {
        definition(self.name, "", self.is_wide)
    }
}

/// What a client wants to see of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// As they are.
    Whole,
    /// Their metadata.
    Metadata,
    /// A line of each, with so much of the object beside it.
    Table(Beside),
}

/// What a table has of each object beside its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    Nothing,
    Metadata,
    Object,
}

impl View {
    /// The first that can be had of what the client accepts, in the order in which it says so.
    pub(crate) fn of(headers: &HeaderMap, include_object: &str) -> Self {
        let accepted = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        for one in accepted.flat_map(|value| value.split(',')) {
            let mut parts = one.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            if !matches!(name, "application/json" | "application/*" | "*/*") {
                continue;
            }
            let (mut wanted, mut version) = ("", "v1");
            for part in parts {
                match part.split_once('=') {
                    Some(("as", name)) => wanted = name,
                    Some(("v", name)) => version = name,
                    _ => {}
                }
            }
            let beside = match include_object {
                "None" => Beside::Nothing,
                "Object" => Beside::Object,
                _ => Beside::Metadata,
            };
            match (wanted, version) {
                ("", _) => return Self::Whole,
                ("Table", "v1") => return Self::Table(beside),
                ("PartialObjectMetadata" | "PartialObjectMetadataList", "v1") => {
                    return Self::Metadata;
                }
                _ => {}
            }
        }
        Self::Whole
    }

    pub(crate) fn one(self, served: &Served, object: Value) -> Value {
        match self {
            Self::Whole => object,
            Self::Metadata => partial(&object),
            Self::Table(beside) => {
                let version = json!({"resourceVersion": meta::resource_version(&object)});
                table(served, beside, version, vec![object], true)
            }
        }
    }

    /// An event of a watch: of its tables the first has the columns.
    pub(crate) fn event(self, served: &Served, mut event: Value, is_first: bool) -> Value {
        let object = event["object"].take();
        event["object"] = match self {
            // What went wrong is no object.
            _ if event["type"] == "ERROR" => object,
            Self::Table(beside) => {
                let version = json!({"resourceVersion": meta::resource_version(&object)});
                table(served, beside, version, vec![object], is_first)
            }
            _ => self.one(served, object),
        };
        event
    }

    pub(crate) fn many(self, served: &Served, mut list: List) -> Value {
        if let Self::Whole = self {
            return list.into_answer(served.objects.kind());
        }
        let items = std::mem::take(&mut list.items);
        let metadata = list.into_answer(served.objects.kind())["metadata"].take();
        match self {
            Self::Table(beside) => table(served, beside, metadata, items, true),
            _ => json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                "items": items.iter().map(partial).collect::<Vec<_>>(),
            }),
        }
    }
}

fn table(
    served: &Served,
    beside: Beside,
    metadata: Value,
    objects: Vec<Value>,
    with_columns: bool,
) -> Value {
    let mut columns = Vec::new();
    if with_columns {
        columns.push(definition("Name", "name", false));
        columns.extend(served.columns.iter().map(Column::definition));
        columns.push(definition("Age", "", false));
    }
    let rows = objects.into_iter().map(|object| {
        let mut cells = vec![object["metadata"]["name"].clone()];
        cells.extend(served.columns.iter().map(|column| (column.cell)(&object)));
        cells.push(age(&object).into());
        match beside {
            Beside::Nothing => json!({"cells": cells}),
            Beside::Metadata => json!({"cells": cells, "object": partial(&object)}),
            Beside::Object => json!({"cells": cells, "object": object}),
        }
    });
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns, "rows": rows.collect::<Vec<_>>(),
    })
}

fn definition(name: &str, format: &str, is_wide: bool) -> Value {
    let priority = u8::from(is_wide);
    json!({"name": name, "type": "string", "format": format, "description": name, "priority": priority})
}

fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
    })
}

/// How old an object is, as people say it: in two units as long as the second one matters.
fn age(object: &Value) -> String {
    let made = object["metadata"]["creationTimestamp"].as_str();
    let Some(made) = made.and_then(|made| made.parse::<Timestamp>().ok()) else {
        return "<unknown>".into();
    };
    duration(Timestamp::now().as_second() - made.as_second())
}

/// As `k8s.io/apimachinery/pkg/util/duration` says it.
fn duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, part: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{part}"),
    };
    match seconds {
        ..0 => "0s".into(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_as_kubernetes_tells_them() {
        const HOUR: i64 = 3_600;
        const DAY: i64 = 24 * HOUR;
        for (seconds, told) in [
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (8 * DAY - 1, "7d23h"),
            (8 * DAY, "8d"),
            (730 * DAY - 1, "729d"),
            (730 * DAY, "2y"),
            (731 * DAY, "2y1d"),
            (8 * 365 * DAY, "8y"),
        ] {
            assert_eq!(duration(seconds), told, "{seconds}");
        }
    }
}
