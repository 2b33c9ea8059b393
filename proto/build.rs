//! Generates the NodeLink client and server.

fn main() -> std::io::Result<()> {
    tonic_prost_build::configure()
        .bytes(".")
        .compile_protos(&["swiftlet/v1/node_link.proto"], &["."])
}
