//! The types in `src/codec/proto` are what the `.proto` files in `tests/proto/files` say.
//!
//! They are generated here and compared with what is checked in, so that users of the crate need
//! neither `protoc` nor a build script. After a change of a `.proto` file:
//!
//! ```text
//! UPDATE_GENERATED=1 cargo test -p proto --test codegen
//! ```

mod schema;
mod types;

use std::collections::BTreeSet;
use std::fs;

use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};

#[test]
fn the_checked_in_types_are_what_the_proto_files_say() {
    let pool = proto::pool();
    let used = Used::of(pool);
    let generated = [
        ("messages.rs", types::generate(pool, &used)),
        ("schema.rs", schema::generate(pool, &used)),
    ];

    let folder = proto::root().join("src/codec/proto");
    let update = std::env::var_os("UPDATE_GENERATED").is_some();
    let mut stale = Vec::new();
    for (name, text) in generated {
        let path = folder.join(name);
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
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

/// Full names of the messages and enums that some body or notice can hold. The others get no type.
/// A body without fields needs none either: its kind says all.
pub(crate) struct Used {
    messages: BTreeSet<String>,
    enums: BTreeSet<String>,
}

impl Used {
    fn of(pool: &DescriptorPool) -> Self {
        let client = proto::client_kinds().filter_map(proto::client_message);
        let server = proto::server_kinds().flat_map(|kind| {
            [false, true].into_iter().filter_map(move |galaxy| proto::server_message(kind, galaxy))
        });
        let bodies = client.chain(server).chain((1..).map_while(proto::notice_message));
        let mut used = Self { messages: BTreeSet::new(), enums: BTreeSet::new() };
        for name in bodies {
            let body = pool.get_message_by_name(name).expect("the body of a kind is described");
            if body.fields().len() > 0 {
                used.add(&body);
            }
        }
        used
    }

    fn add(&mut self, message: &MessageDescriptor) {
        if !self.messages.insert(message.full_name().to_owned()) {
            return;
        }
        for field in message.fields() {
            match field.kind() {
                Kind::Message(inner) => self.add(&inner),
                Kind::Enum(values) => {
                    self.enums.insert(values.full_name().to_owned());
                }
                _ => {}
            }
        }
    }
}

/// True if the type holds the message behind a pointer, because it could hold itself.
fn is_boxed(field: &FieldDescriptor) -> bool {
    let mut seen = BTreeSet::new();
    let mut next: Vec<_> = field.kind().as_message().cloned().into_iter().collect();
    if field.is_list() {
        return false;
    }
    while let Some(message) = next.pop() {
        if message == *field.parent_message() {
            return true;
        }
        if seen.insert(message.full_name().to_owned()) {
            let inside = message.fields().filter(|field| !field.is_list());
            next.extend(inside.filter_map(|field| field.kind().as_message().cloned()));
        }
    }
    false
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    for letter in name.replace("TSO", "Tso").chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}
