//! Commits.
#![expect(unsafe_code, reason = "walks nodes in arena memory; see the SAFETY notes")]

mod chain;
mod group;
mod order;
mod plan;
mod replay;
#[cfg(test)]
mod tests;
mod ticket;
mod world;

pub(crate) use chain::{Chain, Snapshot};
pub(crate) use plan::{Footprint, OrderError, Ordered, Plan, Write, WriteKind};
pub(crate) use ticket::Ticket;
pub(crate) use world::{BatchInfo, Below, Log, World};
