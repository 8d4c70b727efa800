//! `schema`: what the JSON of a command is made of.
//!
//! Every JSON document names its schema in the member `schema`. The number at its end goes up when a member goes
//! away or means something else; new members come without that.

use clap::Args;
use serde_json::{Value, json};

use crate::exit::{Failure, Outcome};
use crate::output::Output;
use crate::schemas::SCHEMAS;

/// Arguments of `schema`.
#[derive(Debug, Args)]
#[command(
    after_help = "The schema is written as JSON Schema (draft 2020-12). With -o json a command writes one document,
which names its schema: \"schema\": \"annals.COMMAND/1\". With -o ndjson a list is written as its
elements, a line each. The number goes up when a member goes away or means something else; new
members come without that.

Examples:
  $ annals schema                                      # the commands that have one
  $ annals schema range
  $ annals schema lease list"
)]
pub(crate) struct SchemaArgs {
    /// The command; without one all that have a schema are listed.
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

/// `schema`: of a command.
pub(crate) fn schema(args: &SchemaArgs, out: &mut Output) -> Outcome {
    if args.command.is_empty() {
        let names: Vec<Value> =
            SCHEMAS.iter().map(|(name, _)| json!(name.replace('.', " "))).collect();
        return out.object(&json!({ "commands": names }));
    }
    let name = args.command.join(".");
    let found = SCHEMAS.iter().find(|(command, _)| *command == name);
    let (_, text) = found.ok_or_else(|| {
        let name = args.command.join(" ");
        Failure::NotFound(format!(
            "{name}: there is no such command, or it writes no JSON: `annals schema` lists them"
        ))
    })?;
    out.bytes(text.as_bytes())
}
