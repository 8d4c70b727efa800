//! The stores, one file each.

pub mod annals;
pub mod bare;
pub mod fjall;
pub mod heed;
pub mod redb;
pub mod sqlite;
pub mod surrealkv;

use crate::peer::Contestant;
use crate::recipe;

/// Everybody, in the order of the table's columns: annals first, then the bare loop.
pub const ALL: &[Contestant] = &[
    Contestant { name: "annals", open: annals::open },
    Contestant { name: "bare", open: bare::open },
    Contestant { name: "redb", open: recipe::open::<redb::Redb> },
    Contestant { name: "LMDB", open: recipe::open::<heed::Lmdb> },
    Contestant { name: "fjall", open: recipe::open::<fjall::Fjall> },
    Contestant { name: "SQLite", open: sqlite::open },
    Contestant { name: "SurrealKV", open: surrealkv::open_native },
    Contestant { name: "SurrealKV recipe", open: recipe::open::<surrealkv::Plain> },
];
