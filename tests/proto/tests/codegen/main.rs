//! The types in `src/codec/proto` are what the `.proto` files say.
//!
//! They are generated here and compared with what is checked in, so that users of the crate need
//! neither `protoc` nor a build script. After a change of a `.proto` file:
//!
//! ```text
//! UPDATE_GENERATED=1 cargo test -p proto --test codegen
//! ```

mod schema;

use std::collections::BTreeMap;
use std::fs;

use prost_reflect::MessageDescriptor;
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FileDescriptorSet};

#[test]
fn the_checked_in_types_are_what_the_proto_files_say() {
    let pool = proto::pool();
    let mut generated = types(pool);
    generated.insert("schema.rs".to_owned(), schema::generate(pool));

    let folder = proto::root().join("src/codec/proto");
    let update = std::env::var_os("UPDATE_GENERATED").is_some();
    let mut stale = Vec::new();
    for (name, text) in &generated {
        let path = folder.join(name);
        if fs::read_to_string(&path).is_ok_and(|there| there == *text) {
            continue;
        }
        if update {
            fs::write(&path, text).expect("the generated file can be written");
        } else {
            stale.push(name);
        }
    }
    assert!(stale.is_empty(), "{stale:?} are stale, run this with UPDATE_GENERATED=1");
}

/// One file of Rust types per `.proto` file.
fn types(pool: &prost_reflect::DescriptorPool) -> BTreeMap<String, String> {
    let mut files = FileDescriptorSet::default();
    for file in pool.files() {
        let mut file = decode(&file.encode_to_vec());
        file.message_type.iter_mut().for_each(text_is_bytes);
        files.file.push(file);
    }
    let bare: Vec<_> = pool.all_messages().filter(is_bare).collect();
    let out = tempfile();
    let mut config = prost_build::Config::new();
    config.out_dir(&out);
    // They carry a proof of the password; the crate writes their `Debug` itself.
    config.skip_debug([".session.AuthenticateStart", ".session.AuthenticateContinue"]);
    config.compile_fds(files).expect("the types can be generated");
    let generated = fs::read_dir(&out)
        .expect("the generated files are there")
        .map(|entry| {
            let path = entry.expect("a generated file").path();
            let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).expect("a generated file can be read");
            (name, reduced(&text, &bare))
        })
        .collect();
    fs::remove_dir_all(&out).expect("the generated files can be removed");
    generated
}

/// True for a message without fields that no field holds: the body of a kind that says all. It needs
/// no type.
fn is_bare(message: &MessageDescriptor) -> bool {
    let pool = message.parent_pool();
    let mut fields = pool.all_messages().flat_map(|other| other.fields().collect::<Vec<_>>());
    message.fields().len() == 0 && fields.all(|field| field.kind().as_message() != Some(message))
}

/// The types without those of bare messages, and without the names of enum values. Only the types
/// of columns keep their names: people read them.
fn reduced(text: &str, bare: &[MessageDescriptor]) -> String {
    let bare: Vec<_> = bare.iter().map(|one| format!("pub struct {} {{}}", one.name())).collect();
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let is_names = line.trim_start().starts_with("impl ")
            && !["FieldType", "OriginalType"].iter().any(|name| line.contains(name));
        if is_names {
            let end = line.replace(line.trim_start(), "}");
            let _ = lines.by_ref().find(|line| *line == end);
        } else if bare.iter().any(|one| one == line) {
            // The documentation and the attributes before it go, too.
            while matches!(out.lines().last(), Some(last) if last.starts_with(['#', '/'])) {
                let last = out.trim_end().rfind('\n').map_or(0, |at| at + 1);
                if out[last..].starts_with("// ") {
                    break;
                }
                out.truncate(last);
            }
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

fn decode(bytes: &[u8]) -> prost_types::FileDescriptorProto {
    prost::Message::decode(bytes).expect("a descriptor can be decoded")
}

/// In proto2 a `string` is unchecked bytes, and both existing peers let any pass. prost would refuse
/// texts that are not UTF-8, which a database may have.
fn text_is_bytes(message: &mut DescriptorProto) {
    for field in &mut message.field {
        if field.r#type() == Type::String {
            field.set_type(Type::Bytes);
        }
    }
    message.nested_type.iter_mut().for_each(text_is_bytes);
}

fn tempfile() -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("epoll-group-codegen-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for the generated files");
    folder
}
