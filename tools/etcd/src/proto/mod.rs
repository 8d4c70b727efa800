//! etcd's protocol, made by `tools/etcd/generate` of `tools/etcd/proto`.

#![allow(
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    clippy::missing_errors_doc,
    unused_imports,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    dead_code,
    reason = "made by a program"
)]

pub mod authpb {
    include!("authpb.rs");
}
pub mod mvccpb {
    include!("mvccpb.rs");
}
pub mod etcdserverpb {
    include!("etcdserverpb.rs");
}
pub mod v3electionpb {
    include!("v3electionpb.rs");
}
pub mod v3lockpb {
    include!("v3lockpb.rs");
}

/// The descriptors of all of it, as a `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("descriptors.bin");
