//! A body by the names of the `.proto` files, in the form of the vectors.

use epoll_group::codec::message::{ClientKind, ServerKind};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, Value as Field};
use serde_json::{Map, Value, json};

use crate::Vector;

/// The fields that are present in `body`, a message of this name.
pub(crate) fn fields(message: &str, body: &[u8]) -> Value {
    let descriptor =
        proto::pool().get_message_by_name(message).unwrap_or_else(|| panic!("no {message}"));
    let message = DynamicMessage::decode(descriptor, body).expect("what was encoded decodes");
    object(&message)
}

fn object(message: &DynamicMessage) -> Value {
    let fields =
        message.fields().map(|(field, value)| (field.name().to_owned(), one(&field, value)));
    Value::Object(fields.collect::<Map<_, _>>())
}

fn one(field: &FieldDescriptor, value: &Field) -> Value {
    match value {
        Field::Bool(value) => json!(value),
        Field::I32(value) => json!(value),
        Field::U32(value) => json!(value),
        Field::I64(value) => json!(value.to_string()),
        Field::U64(value) => json!(value.to_string()),
        Field::F32(value) => json!(format!("{:08x}", value.to_bits())),
        Field::F64(value) => json!(format!("{:016x}", value.to_bits())),
        Field::String(value) => json!(value),
        Field::Bytes(value) => json!(hex(value)),
        Field::EnumNumber(number) => match field.kind() {
            Kind::Enum(values) => match values.get_value(*number) {
                Some(value) => json!(value.name()),
                None => json!(number),
            },
            _ => unreachable!("an enum has the kind of an enum"),
        },
        Field::Message(message) => object(message),
        Field::List(values) => values.iter().map(|value| one(field, value)).collect(),
        Field::Map(_) => unreachable!("no message has a map"),
    }
}

/// The recorded fields, floating point numbers by their bits alone.
pub(crate) fn recorded(value: &Value) -> Value {
    match value {
        Value::Object(map) if map.contains_key("bits") => map["bits"].clone(),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), recorded(value))).collect())
        }
        Value::Array(values) => values.iter().map(recorded).collect(),
        other => other.clone(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The message in the body of a frame of this kind; `None` if it is not described.
pub(crate) fn message_of(vector: &Vector, galaxy: bool) -> Option<&'static str> {
    if vector.is_from_client() {
        ClientKind::from_number(vector.kind()).and_then(proto::client_message)
    } else {
        let kind = ServerKind::from_number(vector.kind());
        kind.and_then(|kind| proto::server_message(kind, galaxy))
    }
}
