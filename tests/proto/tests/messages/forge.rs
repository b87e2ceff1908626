//! Makes messages up from random bytes, along the `.proto` files, and writes them plainly or oddly.

use prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor};

/// Random bytes, then zeros for ever: so that every message ends.
pub(crate) struct Entropy<'a>(std::slice::Iter<'a, u8>);

impl<'a> Entropy<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.iter())
    }

    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn number(&mut self) -> u64 {
        match self.byte() % 5 {
            0 => 0,
            1 => u64::from(self.byte()),
            2 => u64::MAX,
            3 => u64::from(u32::from_le_bytes([self.byte(), self.byte(), 3, self.byte()])),
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = self.byte() % 20;
        (0..length).map(|_| self.byte()).collect()
    }
}

/// The value of a field, before it is written.
enum Value {
    Varint(u64),
    Fixed(Vec<u8>),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

struct Field {
    number: u32,
    list: bool,
    value: Value,
}

pub(crate) struct Forge {
    message: MessageDescriptor,
}

impl Forge {
    pub(crate) fn new(name: &str) -> Self {
        let message = proto::pool().get_message_by_name(name);
        Self { message: message.unwrap_or_else(|| panic!("no {name}")) }
    }

    /// A message as every encoder should write it.
    pub(crate) fn plain(&self, entropy: &mut Entropy<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        for field in fields(&self.message, entropy, 6) {
            write_plain(&field, &mut out);
        }
        out
    }

    /// The same message for the same entropy: fields out of order, numbers longer than necessary,
    /// unknown fields between them.
    pub(crate) fn odd(&self, entropy: &mut Entropy<'_>) -> Vec<u8> {
        let fields = fields(&self.message, entropy, 6);
        // The rest of the entropy decides about the form. If none is left, these bytes do.
        let mut form: Vec<u8> = entropy.0.by_ref().copied().collect();
        form.extend([1, 2, 3, 250, 7, 90, 33, 4, 5, 6, 17, 201].repeat(100));
        let mut out = Vec::new();
        self.write_odd(fields, &mut Entropy::new(&form), &mut out);
        out
    }

    fn write_odd(&self, fields: Vec<Field>, form: &mut Entropy<'_>, out: &mut Vec<u8>) {
        let mut parts: Vec<(bool, Vec<u8>)> = Vec::new();
        for field in fields {
            let mut part = Vec::new();
            let tag = |wire: u64| u64::from(field.number) << 3 | wire;
            match field.value {
                Value::Varint(value) => {
                    padded(tag(0), form, 5, &mut part);
                    padded(value, form, 10, &mut part);
                }
                Value::Fixed(bytes) => {
                    padded(tag(if bytes.len() == 8 { 1 } else { 5 }), form, 5, &mut part);
                    part.extend(bytes);
                }
                Value::Bytes(bytes) => {
                    padded(tag(2), form, 5, &mut part);
                    padded(bytes.len() as u64, form, 10, &mut part);
                    part.extend(bytes);
                }
                Value::Message(fields) => {
                    let mut inside = Vec::new();
                    self.write_odd(fields, form, &mut inside);
                    padded(tag(2), form, 5, &mut part);
                    padded(inside.len() as u64, form, 10, &mut part);
                    part.extend(inside);
                }
            }
            // Elements of lists keep their order: they go to the end, others to anywhere.
            let at =
                if field.list { parts.len() } else { usize::from(form.byte()) % (parts.len() + 1) };
            parts.insert(at, (field.list, part));
        }
        if form.byte().is_multiple_of(3) {
            let unknown: &[u8] = match form.byte() % 4 {
                0 => b"\xf8\x07\x2a",
                1 => b"\xfa\x07\x03abc",
                2 => b"\xfb\x07\xfd\x07\x01\x02\x03\x04\xfc\x07",
                _ => b"\xf9\x07\x01\x02\x03\x04\x05\x06\x07\x08",
            };
            let at = usize::from(form.byte()) % (parts.len() + 1);
            parts.insert(at, (false, unknown.to_vec()));
        }
        parts.iter().for_each(|(_, part)| out.extend(part));
    }
}

/// The fields of a message, by number.
fn fields(message: &MessageDescriptor, entropy: &mut Entropy<'_>, depth: u32) -> Vec<Field> {
    let mut out = Vec::new();
    let mut fields: Vec<_> = message.fields().collect();
    fields.sort_by_key(FieldDescriptor::number);
    for field in fields {
        let count = match field.cardinality() {
            Cardinality::Required => 1,
            _ if depth == 0 => 0,
            Cardinality::Optional => entropy.byte() % 2,
            Cardinality::Repeated => entropy.byte() % 8 / 2,
        };
        for _ in 0..count {
            let value = value(&field, entropy, depth);
            out.push(Field { number: field.number(), list: field.is_list(), value });
        }
    }
    out
}

fn value(field: &FieldDescriptor, entropy: &mut Entropy<'_>, depth: u32) -> Value {
    match field.kind() {
        Kind::Bool => Value::Varint(u64::from(entropy.byte() % 2)),
        Kind::Uint32 => Value::Varint(entropy.number() & u64::from(u32::MAX)),
        // A negative number is as long as one of 64 bits.
        Kind::Int32 => Value::Varint(i64::from(entropy.number() as i32).cast_unsigned()),
        Kind::Int64 | Kind::Uint64 | Kind::Sint64 => Value::Varint(entropy.number()),
        Kind::Enum(values) => {
            let numbers: Vec<_> = values.values().map(|value| value.number()).collect();
            let number = numbers[usize::from(entropy.byte()) % numbers.len()];
            Value::Varint(i64::from(number).cast_unsigned())
        }
        Kind::Double => Value::Fixed(entropy.number().to_le_bytes().to_vec()),
        Kind::Float => Value::Fixed((entropy.number() as u32).to_le_bytes().to_vec()),
        Kind::String | Kind::Bytes => Value::Bytes(entropy.bytes()),
        Kind::Message(message) => {
            Value::Message(fields(&message, entropy, depth.saturating_sub(1)))
        }
        other => unreachable!("{other:?}"),
    }
}

fn write_plain(field: &Field, out: &mut Vec<u8>) {
    let mut tag = |wire: u64| varint(u64::from(field.number) << 3 | wire, out);
    match &field.value {
        Value::Varint(value) => {
            tag(0);
            varint(*value, out);
        }
        Value::Fixed(bytes) => {
            tag(if bytes.len() == 8 { 1 } else { 5 });
            out.extend(bytes);
        }
        Value::Bytes(bytes) => {
            tag(2);
            varint(bytes.len() as u64, out);
            out.extend(bytes);
        }
        Value::Message(fields) => {
            tag(2);
            let mut inside = Vec::new();
            fields.iter().for_each(|field| write_plain(field, &mut inside));
            varint(inside.len() as u64, out);
            out.extend(inside);
        }
    }
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A varint with up to so many bytes, more than it needs.
fn padded(value: u64, form: &mut Entropy<'_>, most: usize, out: &mut Vec<u8>) {
    let start = out.len();
    varint(value, out);
    let used = out.len() - start;
    let more = usize::from(form.byte() % 8).min(most - used);
    if more > 0 {
        *out.last_mut().expect("a varint has a byte") |= 0x80;
        out.extend(std::iter::repeat_n(0x80, more - 1));
        out.push(0);
    }
}
