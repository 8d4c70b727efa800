//! A server of etcd's version 3 protocol over an annals store.

pub mod proto;
