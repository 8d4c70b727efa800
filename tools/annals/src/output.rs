//! Standard output: tables, JSON, lines of JSON, raw bytes.
//!
//! Only data goes to standard output. Lists are streamed: whatever their length, memory holds one
//! row (tables: one batch of rows, since a table is as wide as its widest cell). Single objects are
//! built as a JSON value and shown by one rule in every format.

use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::exit::{Outcome, say};

/// How data is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One JSON object a line.
    Ndjson,
    /// Bytes as they are; of a list a line for each part, of figures `name value`.
    Raw,
}

/// Rows of a table before the widths are worked out anew and the head is repeated.
const TABLE_BATCH: usize = 1000;

/// Rows left out that are counted: a limit is there to save the work.
const LEFT_OUT_MAX: usize = 1000;

/// One element of a list.
pub(crate) trait Row: Serialize {
    /// The columns of the table.
    const COLUMNS: &'static [&'static str];

    /// Its cells, one for each column.
    fn cells(&self) -> Vec<String>;

    /// Its raw form.
    fn raw(&self, out: &mut dyn Write) -> io::Result<()>;
}

/// A row whose cells are members of its object.
macro_rules! listed {
    ($(#[$doc:meta])* $name:ident: $($column:literal),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name(pub(crate) serde_json::Value);

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.serialize(serializer)
            }
        }

        impl $crate::output::Row for $name {
            const COLUMNS: &'static [&'static str] = &[$($column),+];

            fn cells(&self) -> Vec<String> {
                let cell = |name: &&str| self.0.get(*name).map($crate::output::cell);
                Self::COLUMNS.iter().map(|name| cell(name).unwrap_or_default()).collect()
            }

            fn raw(&self, out: &mut dyn std::io::Write) -> std::io::Result<()> {
                writeln!(out, "{}", $crate::output::Row::cells(self).join("\t"))
            }
        }
    };
}
pub(crate) use listed;

/// Standard output in a format.
#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
    /// What a JSON document is one of.
    schema: String,
    notes_inline: bool,
    out: BufWriter<StdoutLock<'static>>,
}

impl Output {
    /// Standard output of a command (`lease.grant`), in the format asked for.
    pub(crate) fn new(format: Format, command: &str) -> Self {
        let out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        Self { format, schema: format!("annals.{command}/1"), notes_inline: false, out }
    }

    /// A document with its schema.
    pub(crate) fn with_schema(&self, object: &Value) -> Value {
        let mut document = Map::new();
        document.insert("schema".into(), Value::String(self.schema.clone()));
        document.extend(object.as_object().cloned().unwrap_or_default());
        Value::Object(document)
    }

    /// The format asked for.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// From now on notes stand among the data: for a transcript.
    pub(crate) fn inline_notes(&mut self) {
        self.notes_inline = true;
    }

    /// Says something beside the data: on standard error, unless this is a transcript.
    pub(crate) fn note(&mut self, text: impl fmt::Display) -> Outcome {
        if self.notes_inline {
            return Ok(writeln!(self.out, "annals: {text}")?);
        }
        say(text);
        Ok(())
    }

    /// Bytes as they are, whatever the format.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Outcome {
        Ok(self.out.write_all(bytes)?)
    }

    /// Where bytes go as they are, whatever the format.
    pub(crate) fn stream(&mut self) -> &mut dyn Write {
        &mut self.out
    }

    /// One object. Table: names and values, lists of objects as tables below it. Raw: a line
    /// `name value` for each member.
    pub(crate) fn object(&mut self, object: &Value) -> Outcome {
        match self.format {
            Format::Table => self.out.write_all(describe(object).as_bytes())?,
            Format::Json => {
                let document = self.with_schema(object);
                serde_json::to_writer_pretty(&mut self.out, &document)?;
                self.out.write_all(b"\n")?;
            }
            Format::Ndjson => {
                let document = self.with_schema(object);
                serde_json::to_writer(&mut self.out, &document)?;
                self.out.write_all(b"\n")?;
            }
            Format::Raw => {
                for (name, value) in object.as_object().into_iter().flatten() {
                    writeln!(self.out, "{name} {}", cell(value))?;
                }
            }
        }
        Ok(())
    }

    /// Begins a list. In JSON it becomes the member `name` of an object.
    pub(crate) fn rows(&mut self, name: &'static str) -> Rows<'_> {
        Rows {
            output: self,
            name,
            count: 0,
            columns: &[],
            batch: Vec::new(),
            left_out: 0,
            is_cut_off: false,
        }
    }

    /// Writes out what is buffered. Every command that ends well ends with it.
    pub(crate) fn flush(&mut self) -> Outcome {
        Ok(self.out.flush()?)
    }
}

/// A list being written.
#[derive(Debug)]
#[must_use = "a list must be finished"]
pub(crate) struct Rows<'a> {
    output: &'a mut Output,
    name: &'static str,
    count: u64,
    columns: &'static [&'static str],
    batch: Vec<Vec<String>>,
    left_out: usize,
    /// What comes behind those cannot be read.
    is_cut_off: bool,
}

impl Rows<'_> {
    /// Says in a table how many rows a limit has left out. Nothing else says it: whoever reads JSON
    /// asked for the limit and counts what comes.
    pub(crate) fn cut<T, E>(&mut self, left_out: impl Iterator<Item = Result<T, E>>) {
        if !matches!(self.output.format, Format::Table) {
            return;
        }
        for one in left_out.take(LEFT_OUT_MAX + 1) {
            self.is_cut_off = one.is_err();
            if self.is_cut_off {
                break;
            }
            self.left_out += 1;
        }
    }

    /// Adds a row; all rows of a list are of one kind.
    pub(crate) fn push<R: Row>(&mut self, row: &R) -> Outcome {
        let out = &mut self.output.out;
        match self.output.format {
            Format::Table => {
                self.columns = R::COLUMNS;
                self.batch.push(row.cells());
                if self.batch.len() >= TABLE_BATCH {
                    self.table()?;
                }
            }
            Format::Json => {
                if self.count == 0 {
                    write!(out, "{{\"schema\":\"{}\",\"{}\":[", self.output.schema, self.name)?;
                } else {
                    out.write_all(b",")?;
                }
                out.write_all(b"\n")?;
                serde_json::to_writer(out, row)?;
            }
            Format::Ndjson => {
                serde_json::to_writer(&mut *out, row)?;
                out.write_all(b"\n")?;
            }
            Format::Raw => row.raw(out)?,
        }
        self.count += 1;
        Ok(())
    }

    /// Ends the list; `tail` are further members of the JSON document.
    pub(crate) fn finish(mut self, tail: &[(&str, Value)]) -> Outcome<u64> {
        match self.output.format {
            Format::Table => {
                if !self.batch.is_empty() {
                    self.table()?;
                }
                match self.left_out {
                    count if self.is_cut_off => writeln!(
                        self.output.out,
                        "... {count} more, and then what cannot be read: without a limit it is told why"
                    )?,
                    0 => {}
                    1..=LEFT_OUT_MAX => {
                        writeln!(self.output.out, "... {} more", self.left_out)?;
                    }
                    _ => writeln!(self.output.out, "... more than {LEFT_OUT_MAX} more")?,
                }
            }
            Format::Json => {
                let out = &mut self.output.out;
                if self.count == 0 {
                    write!(out, "{{\"schema\":\"{}\",\"{}\":[", self.output.schema, self.name)?;
                } else {
                    out.write_all(b"\n")?;
                }
                out.write_all(b"]")?;
                for (name, value) in tail {
                    write!(out, ",\"{name}\":")?;
                    serde_json::to_writer(&mut *out, value)?;
                }
                out.write_all(b"}\n")?;
            }
            _ => {}
        }
        Ok(self.count)
    }

    fn table(&mut self) -> Outcome {
        let mut table = new_table();
        table.set_header(self.columns.iter().copied());
        table.add_rows(self.batch.drain(..));
        writeln!(self.output.out, "{}", trim(&table))?;
        Ok(())
    }
}

impl Drop for Rows<'_> {
    /// What was found before something failed is shown in a table, too, as in lines of JSON. (A document in JSON stays without its
    /// end: nobody is to take it for the whole.)
    fn drop(&mut self) {
        if !self.batch.is_empty() {
            // What fails here is not what failed first.
            let _ = self.table();
        }
    }
}

fn new_table() -> Table {
    let mut table = Table::new();
    // Cells are cut by whoever makes them; wrapping to a terminal's width breaks grep.
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table
}

fn trim(table: &Table) -> String {
    let text = table.to_string();
    let lines: Vec<&str> =
        text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
    lines.join("\n")
}

/// An object for people: scalars as lines of name and value, then lists of objects as tables.
fn describe(object: &Value) -> String {
    let Some(members) = object.as_object() else { return format!("{}\n", cell(object)) };
    let mut text = String::new();
    let mut scalars = new_table();
    let mut lists = Vec::new();
    flatten("", members, &mut |name, value| match value.as_array() {
        Some(list) if list.iter().any(Value::is_object) => lists.push((name, list)),
        _ => {
            scalars.add_row([name, cell(value)]);
        }
    });
    if scalars.row_count() > 0 {
        text.push_str(&trim(&scalars));
        text.push('\n');
    }
    for (name, list) in lists {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&name);
        text.push('\n');
        text.push_str(&list_table(list));
        text.push('\n');
    }
    text
}

/// Calls `each` for every member, nested objects as `outer.inner`. Bytes (`{"b64": ..}`) are one.
fn flatten<'a>(
    prefix: &str,
    members: &'a Map<String, Value>,
    each: &mut dyn FnMut(String, &'a Value),
) {
    for (name, value) in members {
        let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value.as_object() {
            Some(inner) if !inner.contains_key("b64") => flatten(&name, inner, each),
            _ => each(name, value),
        }
    }
}

fn list_table(list: &[Value]) -> String {
    let mut columns: Vec<String> = Vec::new();
    let mut rows: Vec<Map<String, Value>> = Vec::new();
    for element in list {
        let mut row = Map::new();
        if let Some(members) = element.as_object() {
            flatten("", members, &mut |name, value| {
                if !columns.contains(&name) {
                    columns.push(name.clone());
                }
                row.insert(name, value.clone());
            });
        }
        rows.push(row);
    }
    let mut table = new_table();
    table.set_header(columns.iter());
    for row in rows {
        table.add_row(columns.iter().map(|name| row.get(name).map(cell).unwrap_or_default()));
    }
    trim(&table)
}

/// A JSON value in a cell.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => crate::bytes::show(text.as_bytes(), 120),
        Value::Object(members) if members.len() == 1 && members.contains_key("b64") => {
            match serde_json::from_value::<crate::bytes::Given>(value.clone()) {
                Ok(bytes) => crate::bytes::show(&bytes.0, 120),
                Err(_) => value.to_string(),
            }
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_described_in_order() {
        let text = describe(&json!({
            "b": 1, "a": "x\ny", "in": {"c": null, "d": {"b64": "/w=="}},
            "list": [{"x": 1}, {"y": 2, "x": 3}], "names": ["p", "q"]
        }));
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["b", "1"]);
        assert_eq!(lines[1], ["a", "x\\ny"]);
        assert_eq!(lines[2], ["in.c"]);
        assert_eq!(lines[3], ["in.d", "\\xff"]);
        assert_eq!(lines[4], ["names", r#"["p","q"]"#]);
        assert_eq!(lines[6], ["list"]);
        assert_eq!(lines[7], ["x", "y"]);
        assert_eq!(lines[9], ["3", "2"]);
    }
}
