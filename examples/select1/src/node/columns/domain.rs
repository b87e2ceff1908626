//! [`Domain`]: the values of a column of type BIT, ENUM or SET.
//!
//! The declared type in SQLite has it: `enum blob(61,6e6f)` is `enum('a','no')`. The members are in
//! hexadecimal digits, because SQLite derives the affinity of a column from any part of its type, and a
//! member such as `point` contains `int`. With `blob` the column has no affinity, so a number stays a
//! number, which an ENUM takes as an index.
//!
//! A member of an ENUM is stored as text, so rows are compared and sorted by text: `e = 1` and `e + 0` do
//! not mean the index of a member. A SET is stored as a text with commas, and a BIT as an integer, which
//! is negative from 2⁶³ on. An argument from there on must be bound as octets.
//!
//! `triggers.rs` stores values. The triggers run behind a statement, so CHECK, `on duplicate key update`
//! and `returning` see values as the statement has written them. A returned value gets its stored form when
//! it is sent. `insert ignore` reports a value outside of the domain as an error.

use std::fmt;

use epoll_group::session::SessionError;
use rusqlite::types::{Value, ValueRef};

use super::Type;
use super::value::as_integer;

/// Values of a column of type BIT, ENUM or SET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Integers of at most so many bits.
    Bit(u32),
    Enum(Vec<String>),
    Set(Vec<String>),
}

/// First words of the error of [`Domain::store`] for an ENUM or SET.
pub const TRUNCATED: &str = "Data truncated for column ";
/// First words of that error for a BIT.
pub const TOO_LONG: &str = "Data too long for column ";

const MOST_BITS: u64 = 64;
const MOST_IN_ENUM: usize = 65_535;
const MOST_IN_SET: usize = 64;
/// Longest part of a value or a type that an error repeats, in characters.
const LONGEST_SHOWN: usize = 200;

impl Domain {
    /// # Errors
    /// `column` would have no bits, or too many.
    pub fn bit(column: &str, bits: u64) -> Result<Self, SessionError> {
        if bits == 0 {
            let text = format!("Invalid size for column '{column}': 0 bits (min = 1)");
            return Err(SessionError::new(3013, b"HY000", text));
        }
        if bits > MOST_BITS {
            let text = format!(
                "Display width out of range for column '{column}': {bits} bits (max = {MOST_BITS})"
            );
            return Err(SessionError::new(1439, b"42000", text));
        }
        Ok(Self::Bit(bits as u32))
    }

    /// # Errors
    /// `column` would have too many members, or one of them twice.
    pub fn enumeration(column: &str, members: Vec<String>) -> Result<Self, SessionError> {
        distinct(column, "ENUM", members, MOST_IN_ENUM).map(Self::Enum)
    }

    /// # Errors
    /// `column` would have too many members, one of them twice, or one with a comma.
    pub fn set(column: &str, members: Vec<String>) -> Result<Self, SessionError> {
        if let Some(member) = members.iter().find(|member| member.contains(',')) {
            let text = format!("Illegal set '{member}' value found during parsing");
            return Err(SessionError::new(1367, b"22007", text));
        }
        distinct(column, "SET", members, MOST_IN_SET).map(Self::Set)
    }

    /// Reads a type as SQLite has it. `None` if it is another type.
    pub fn declared(declared: &str) -> Option<Self> {
        let (kind, list) = declared.strip_suffix(')')?.split_once(" blob(")?;
        let member = |digits| String::from_utf8(from_hex(digits)?).ok();
        let members = || list.split(',').map(member).collect::<Option<_>>();
        match kind {
            "bit" => Self::bit("", list.parse().ok()?).ok(),
            "enum" => Self::enumeration("", members()?).ok(),
            "set" => Self::set("", members()?).ok(),
            _ => None,
        }
    }

    /// The type and what belongs to it in the definition of a column for SQLite.
    pub fn definition(&self) -> String {
        let (kind, members) = match self {
            Self::Bit(bits) => return format!("\"bit blob({bits})\""),
            Self::Enum(members) => ("enum", members),
            Self::Set(members) => ("set", members),
        };
        let members: Vec<_> = members.iter().map(|member| hex(member)).collect();
        format!("\"{kind} blob({})\" collate nocase", members.join(","))
    }

    pub(super) fn kind(&self) -> Type {
        let length = |member: &String| member.chars().count() as u32;
        match self {
            Self::Bit(bits) => Type::Bit(*bits),
            Self::Enum(members) => Type::Enum(members.iter().map(length).max().unwrap_or(0)),
            Self::Set(members) => {
                let commas = members.len().saturating_sub(1) as u32;
                Type::Set(members.iter().map(length).sum::<u32>() + commas)
            }
        }
    }

    /// Returns the stored form of a value.
    ///
    /// # Errors
    /// `column` cannot hold it.
    pub fn store(&self, column: &str, value: ValueRef<'_>) -> Result<Value, String> {
        let stored = match (self, value) {
            (_, ValueRef::Null) => Some(Value::Null),
            (Self::Bit(bits), ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => {
                from_bytes(bytes).and_then(|number| within(number, *bits))
            }
            (Self::Bit(bits), _) => {
                as_integer(value).and_then(|number| within(number.cast_unsigned(), *bits))
            }
            (_, ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => {
                let named = std::str::from_utf8(bytes).ok().and_then(|text| self.named(text));
                named.or_else(|| self.numbered(value)).map(Value::Text)
            }
            _ => self.numbered(value).map(Value::Text),
        };
        stored.ok_or_else(|| {
            let problem = if matches!(self, Self::Bit(_)) { TOO_LONG } else { TRUNCATED };
            format!("{problem}'{}': {}", shown(column), self.excludes(&written(value)))
        })
    }

    /// Returns the text of an error: the value is not in this domain.
    pub fn excludes(&self, value: &str) -> String {
        format!("{} is not in {}", shown(value), shown(&self.to_string()))
    }

    /// Returns the stored form of the members that a text names, in any case.
    pub fn named(&self, text: &str) -> Option<String> {
        let text = text.trim_end_matches(' ');
        match self {
            Self::Bit(_) => None,
            Self::Enum(members) => members.get(position(members, text)?).cloned(),
            Self::Set(_) if text.is_empty() => Some(String::new()),
            Self::Set(members) => {
                let bit = |name| position(members, name).map(|at| 1_u64 << at);
                let bits = text.split(',').try_fold(0, |bits, name| Some(bits | bit(name)?))?;
                Some(chosen(members, bits))
            }
        }
    }

    /// Returns the member of an ENUM by its index from 1, the members of a SET by their bits.
    fn numbered(&self, value: ValueRef<'_>) -> Option<String> {
        let number = as_integer(value)?;
        match self {
            Self::Bit(_) => None,
            Self::Enum(members) => {
                members.get(usize::try_from(number).ok()?.checked_sub(1)?).cloned()
            }
            Self::Set(members) => {
                within(number.cast_unsigned(), members.len() as u32)?;
                Some(chosen(members, number.cast_unsigned()))
            }
        }
    }
}

/// The type as MySQL writes it.
impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, members) = match self {
            Self::Bit(bits) => return write!(f, "bit({bits})"),
            Self::Enum(members) => ("enum", members),
            Self::Set(members) => ("set", members),
        };
        write!(f, "{kind}(")?;
        for (at, member) in members.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}'{}'", member.replace('\\', "\\\\").replace('\'', "''"))?;
        }
        f.write_str(")")
    }
}

/// Names in the stored form of a SET.
pub fn names(set: &[u8]) -> impl Iterator<Item = &[u8]> {
    let names = (!set.is_empty()).then(|| set.split(|byte| *byte == b','));
    names.into_iter().flatten()
}

fn distinct(
    column: &str,
    kind: &str,
    members: Vec<String>,
    most: usize,
) -> Result<Vec<String>, SessionError> {
    if let Some(member) = members.iter().find(|member| member.contains('\0')) {
        let kind = kind.to_lowercase();
        let text = format!("Illegal {kind} '{}' value found: a member has no NUL", shown(member));
        return Err(SessionError::new(1367, b"22007", text));
    }
    let error = |code, text| Err(SessionError::new(code, b"HY000", text));
    if members.len() > most {
        let text = format!(
            "Too many strings for column {column} and {kind}: {} (max = {most})",
            members.len()
        );
        return error(1097, text);
    }
    let members: Vec<_> =
        members.into_iter().map(|member| member.trim_end_matches(' ').to_owned()).collect();
    let mut seen = std::collections::HashSet::new();
    match members.iter().find(|member| !seen.insert(member.to_lowercase())) {
        Some(member) => {
            error(1291, format!("Column '{column}' has duplicated value '{member}' in {kind}"))
        }
        None => Ok(members),
    }
}

/// A value as an error repeats it.
pub fn written(value: ValueRef<'_>) -> String {
    shown(&match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(bytes) => format!("'{}'", String::from_utf8_lossy(bytes)),
        ValueRef::Blob(bytes) => format!("'{}'", bytes.escape_ascii()),
    })
}

/// The beginning of a text for an error. Control characters are escaped: with a NUL in it SQLite's errors
/// lose their text.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars().take(LONGEST_SHOWN) {
        match character {
            control if control.is_control() => shown.extend(control.escape_debug()),
            other => shown.push(other),
        }
    }
    shown
}

fn position(members: &[String], name: &str) -> Option<usize> {
    members.iter().position(|member| member == name).or_else(|| {
        let lower = name.to_lowercase();
        members.iter().position(|member| member.to_lowercase() == lower)
    })
}

/// The text of the members whose bits are set, in the order of the definition.
fn chosen(members: &[String], bits: u64) -> String {
    let chosen = members.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
    chosen.map(|(_, member)| member.as_str()).collect::<Vec<_>>().join(",")
}

fn within(number: u64, bits: u32) -> Option<Value> {
    let is_within = number.checked_shr(bits).unwrap_or(0) == 0;
    is_within.then(|| Value::Integer(number.cast_signed()))
}

/// Bytes as a number, the highest first.
fn from_bytes(bytes: &[u8]) -> Option<u64> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let bytes = &bytes[zeros..];
    (bytes.len() <= 8).then(|| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes pairs of hexadecimal digits.
pub fn from_hex(digits: &str) -> Option<Vec<u8>> {
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.as_bytes().chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_declared_type_keeps_to_the_limits() {
        let set = |members| {
            let members: Vec<_> = (0..members).map(|member| hex(&format!("m{member}"))).collect();
            format!("set blob({})", members.join(","))
        };
        let cases =
            ["bit blob(0)", "bit blob(65)", "bit blob(4000000000)", "enum blob(6100)", &set(65)];
        for declared in cases {
            assert_eq!(Domain::declared(declared), None, "{declared}");
        }
        assert!(Domain::declared(&set(64)).is_some());
    }

    fn members() -> impl Strategy<Value = Vec<String>> {
        let members = prop::collection::hash_set("[a-z '\\\\ä😀]{0,5}[a-z]", 1..=MOST_IN_SET);
        members.prop_map(|members| members.into_iter().collect())
    }

    proptest! {
        #[test]
        fn a_set_is_stored_in_the_order_of_its_definition_and_once(
            members in members(),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 0..100),
        ) {
            let picked: Vec<_> = picks.iter().map(|at| members[at.index(members.len())].as_str()).collect();
            let in_order = members.iter().map(String::as_str).filter(|name| picked.contains(name));
            let expected = in_order.collect::<Vec<_>>().join(",");
            let set = Domain::Set(members.clone());
            prop_assert_eq!(set.named(&picked.join(",").to_uppercase()), Some(expected.clone()));
            prop_assert_eq!(set.named(&expected), Some(expected));
        }

        #[test]
        fn a_definition_is_read_back(members in members(), bits in 1_u64..=64) {
            for domain in [
                Domain::bit("a", bits),
                Domain::enumeration("a", members.clone()),
                Domain::set("a", members),
            ] {
                let domain = domain.expect("it is valid");
                let definition = domain.definition();
                let declared = definition.split('"').nth(1).expect("it is quoted");
                for word in ["int", "char", "clob", "text"] {
                    prop_assert!(!declared.contains(word), "{}", declared);
                }
                prop_assert_eq!(Domain::declared(declared), Some(domain));
            }
        }
    }
}
