//! The `.proto` files of the crate, read without a `protoc`.

use std::path::{Path, PathBuf};

use prost_reflect::DescriptorPool;

/// Folder of the crate.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Every `.proto` file, in a fixed order.
pub fn files() -> Vec<PathBuf> {
    let folder = root().join("src/codec/proto");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder of the .proto files is there")
        .map(|entry| entry.expect("its entries can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "proto"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no .proto file in {}", folder.display());
    files
}

/// What they say.
pub fn pool() -> DescriptorPool {
    let mut compiler = protox::Compiler::new([root().join("src/codec/proto")])
        .expect("the folder of the .proto files is there");
    compiler.include_source_info(true);
    compiler.open_files(files()).expect("the .proto files are right");
    compiler.descriptor_pool()
}
