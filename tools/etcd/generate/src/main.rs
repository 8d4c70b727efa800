//! Makes the Rust code of etcd's protocol, and the descriptors which its JSON gateway reads.

use std::path::Path;

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let protos = ["rpc.proto", "v3lock.proto", "v3election.proto"];
    let descriptors = protox::compile(protos, [crate_dir.join("proto")])?;
    let to = crate_dir.join("src/proto");
    let mut bytes = descriptors.clone();
    for file in &mut bytes.file {
        file.source_code_info = None;
    }
    std::fs::write(to.join("descriptors.bin"), bytes.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        .build_client(true)
        .out_dir(to)
        .compile_fds(descriptors)?;
    Ok(())
}
