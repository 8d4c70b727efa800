//! The binary `annals-etcd`.

fn main() {}
