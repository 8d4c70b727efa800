//! The stores, one file each.

pub mod annals;
pub mod bare;
pub mod fjall;
pub mod grouped;
pub mod heed;
pub mod nothing;
pub mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
pub mod sqlite;
pub mod surrealkv;

use crate::peer::{Contestant, Role};
use crate::recipe;

const fn peer(name: &'static str, open: crate::peer::Open) -> Contestant {
    Contestant { name, role: Role::Peer, open }
}

const fn group(name: &'static str, open: crate::peer::Open) -> Contestant {
    Contestant { name, role: Role::Grouped, open }
}

/// Everybody, in the order of the table's columns: annals first, then the bare loop, the peers as they
/// are, the peers under a group commit.
pub const ALL: &[Contestant] = &[
    Contestant { name: "annals", role: Role::Annals, open: annals::open },
    Contestant { name: "bare", role: Role::Bare, open: bare::open },
    peer("redb", recipe::open::<redb::Redb>),
    peer("LMDB", recipe::open::<heed::Lmdb>),
    peer("fjall", recipe::open::<fjall::Fjall>),
    #[cfg(feature = "rocksdb")]
    peer("RocksDB", recipe::open::<rocksdb::Rocks>),
    peer("SQLite", sqlite::open),
    peer("SurrealKV", surrealkv::open_native),
    peer("SurrealKV recipe", recipe::open::<surrealkv::Plain>),
    group("redb+group", |dir, level| grouped::over(recipe::open::<redb::Redb>, dir, level)),
    group("LMDB+group", |dir, level| grouped::over(recipe::open::<heed::Lmdb>, dir, level)),
    group("fjall+group", |dir, level| grouped::over(recipe::open::<fjall::Fjall>, dir, level)),
    #[cfg(feature = "rocksdb")]
    group("RocksDB+group", |dir, level| grouped::over(recipe::open::<rocksdb::Rocks>, dir, level)),
    group("SQLite+group", |dir, level| grouped::over(sqlite::open, dir, level)),
    group("SurrealKV+group", |dir, level| grouped::over(surrealkv::open_native, dir, level)),
    group("SurrealKV recipe+group", |dir, level| {
        grouped::over(recipe::open::<surrealkv::Plain>, dir, level)
    }),
];
