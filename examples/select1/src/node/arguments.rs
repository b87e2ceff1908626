//! Values that come with a statement, for its `?` marks.
//!
//! They are bound, so that none of them becomes syntax. Two kinds are syntax by nature. A name
//! (identifier) is put into the text, in quotes. A raw string, which the original splices as it is, is
//! taken only where it is a number, as clients send decimals: anything else would let a value become
//! statements.

use epoll_group::codec::message::{AnyValue, ScalarValue};
use epoll_group::codec::proto::value::{Any, Scalar};
use epoll_group::codec::value::{Decimal, Value as Cell};
use epoll_group::session::{Row, SessionError};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};

use crate::node::columns::Type;
use crate::node::errors::{not_utf8, out_of_range};

/// Collations of latin1. Its bytes are read as the first 256 characters of Unicode, which is wrong
/// for the euro sign and a few rare characters.
const LATIN1: [u64; 8] = [5, 8, 15, 31, 47, 48, 49, 94];
const BINARY: u64 = 63;

/// Reads the arguments of a statement.
pub fn read(arguments: &[Any]) -> Result<Vec<ScalarValue<'_>>, SessionError> {
    let read = arguments.iter().map(|argument| match argument.value()? {
        AnyValue::Scalar(scalar) => match scalar.value()? {
            ScalarValue::Placeholder(_) => {
                Err(SessionError::unsupported("a placeholder is no argument of a statement"))
            }
            ScalarValue::Double(number) if !number.is_finite() => Err(illegal(number)),
            ScalarValue::Float(number) if !number.is_finite() => Err(illegal(number.into())),
            ScalarValue::RawString(text) if number(text).is_none() => {
                let text = "a raw string must be a number, because it would become syntax";
                Err(SessionError::unsupported(text))
            }
            value => Ok(value),
        },
        _ => Err(SessionError::unsupported("only scalars are arguments of a statement")),
    });
    read.collect()
}

fn illegal(number: f64) -> SessionError {
    SessionError::new(1367, b"22007", format!("Illegal double '{number}' value found"))
}

/// The text, if it is a number as SQL writes it.
fn number(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?;
    let looks = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    (looks && text.parse::<f64>().is_ok_and(f64::is_finite)).then_some(text)
}

/// Returns the value for SQLite.
pub fn to_sql(value: ScalarValue<'_>) -> Result<ToSqlOutput<'_>, SessionError> {
    let owned = |value: Value| Ok(ToSqlOutput::Owned(value));
    match value {
        ScalarValue::Signed(number) => owned(Value::Integer(number)),
        ScalarValue::Unsigned(number) => match i64::try_from(number) {
            Ok(number) => owned(Value::Integer(number)),
            Err(_) => {
                Err(out_of_range(&format!("{number} is more than the engine's integers hold")))
            }
        },
        ScalarValue::Null => owned(Value::Null),
        ScalarValue::Octets(bytes) => Ok(ToSqlOutput::Borrowed(ValueRef::Blob(bytes))),
        ScalarValue::Double(number) => owned(Value::Real(number)),
        ScalarValue::Float(number) => owned(Value::Real(widen(number))),
        ScalarValue::Bool(is) => owned(Value::Integer(is.into())),
        ScalarValue::String(bytes, Some(BINARY)) => {
            Ok(ToSqlOutput::Borrowed(ValueRef::Blob(bytes)))
        }
        ScalarValue::String(bytes, collation) => match std::str::from_utf8(bytes) {
            Ok(_) => Ok(ToSqlOutput::Borrowed(ValueRef::Text(bytes))),
            Err(_) if collation.is_some_and(|collation| LATIN1.contains(&collation)) => {
                owned(Value::Text(bytes.iter().copied().map(char::from).collect()))
            }
            Err(_) => Err(not_utf8()),
        },
        ScalarValue::RawString(text) => owned(number_value(text)),
        ScalarValue::Identifier(_) => Err(SessionError::unsupported("a name is no value")),
        _ => Err(SessionError::unsupported("an argument of an unknown kind")),
    }
}

/// Returns the number that has the same shortest text: SQL stores 0.1 and not 0.10000000149.
pub fn widen(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| number.into())
}

/// A number in the form that keeps all of its digits.
fn number_value(text: &[u8]) -> Value {
    let text = number(text).unwrap_or_default();
    if let Ok(number) = text.parse() {
        return Value::Integer(number);
    }
    let digits = text.bytes().take_while(|b| !b"eE".contains(b)).filter(u8::is_ascii_digit).count();
    match text.parse() {
        Ok(number) if digits <= EXACT_DIGITS => Value::Real(number),
        _ => Value::Text(text.to_owned()),
    }
}

/// Number of digits that a double always keeps.
const EXACT_DIGITS: usize = 15;

/// Returns a copy that outlives the request.
pub fn owned(value: ScalarValue<'_>) -> Scalar {
    match value {
        ScalarValue::Signed(number) => Scalar::signed(number),
        ScalarValue::Unsigned(number) => Scalar::unsigned(number),
        ScalarValue::Bool(is) => Scalar::bool(is),
        ScalarValue::Double(number) => Scalar::double(number),
        ScalarValue::Float(number) => Scalar::float(number),
        ScalarValue::Octets(bytes) => Scalar::octets(bytes),
        ScalarValue::String(bytes, collation) => Scalar::string(bytes, collation),
        ScalarValue::RawString(text) => Scalar::raw_string(text),
        _ => Scalar::null(),
    }
}

/// The type of a result column that shows this argument.
pub fn kind(value: ScalarValue<'_>) -> Type {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    match value {
        ScalarValue::Signed(_) | ScalarValue::Bool(_) => Type::BIGINT,
        ScalarValue::Unsigned(_) => {
            Type::Unsigned(epoll_group::codec::proto::resultset::OriginalType::MysqlTypeLonglong)
        }
        ScalarValue::Octets(bytes) | ScalarValue::String(bytes, Some(BINARY)) => {
            Type::VarBinary(length(bytes))
        }
        ScalarValue::Double(_) => Type::Double,
        ScalarValue::Float(_) => Type::Float,
        ScalarValue::String(bytes, _) => Type::VarChar(length(bytes)),
        ScalarValue::RawString(text) => match decimal(text) {
            Some(decimal) => {
                let digits = decimal.digits().count().clamp(1, 65) as u8;
                Type::Decimal { digits, scale: decimal.scale() }
            }
            None => Type::Double,
        },
        _ => Type::Null,
    }
}

fn decimal(text: &[u8]) -> Option<Decimal> {
    number(text)?.trim_start_matches('+').parse().ok()
}

/// Writes the argument as a cell of the result column that shows it.
pub fn write(row: &mut Row<'_>, value: ScalarValue<'_>) {
    match value {
        ScalarValue::Signed(number) => row.int(number),
        ScalarValue::Unsigned(number) => row.uint(number),
        ScalarValue::Bool(is) => row.int(is.into()),
        ScalarValue::Double(number) => row.value(Cell::Double(number)),
        ScalarValue::Float(number) => row.value(Cell::Float(number)),
        ScalarValue::Octets(bytes) | ScalarValue::String(bytes, _) => row.text(bytes),
        ScalarValue::RawString(text) => row.value(match decimal(text) {
            Some(decimal) => Cell::Decimal(decimal),
            None => Cell::Double(number(text).and_then(|text| text.parse().ok()).unwrap_or(0.0)),
        }),
        _ => row.null(),
    }
}

#[cfg(test)]
mod tests {
    use epoll_group::codec::proto::value::Scalar;
    use proptest::prelude::*;
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn a_raw_string_is_a_number_or_refused() {
        let read_one = |text: &str| read(&[Scalar::raw_string(text).into()]).map(|_| ());
        for good in ["1", "-1.5", "+2", "1e9", "12345678901234567890.123456789", ".5"] {
            assert_eq!(read_one(good), Ok(()), "{good}");
        }
        for bad in ["", "1; drop table t", "now()", "'a'", "1 or 1=1", "--1", "e", "nan", "inf"] {
            assert!(read_one(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for scalar in
            [Scalar::placeholder(0), Scalar::double(f64::NAN), Scalar::float(f32::INFINITY)]
        {
            assert!(read(&[scalar.into()]).is_err());
        }
        assert_eq!(to_sql(ScalarValue::Unsigned(u64::MAX)).expect_err("too large").code, 1264);
        assert_eq!(to_sql(ScalarValue::String(b"\xff", None)).expect_err("no text").code, 1300);
        assert!(to_sql(ScalarValue::String(b"\xff", Some(8))).is_ok());
    }

    fn scalar() -> impl Strategy<Value = Scalar> {
        prop_oneof![
            any::<i64>().prop_map(Scalar::signed),
            any::<u32>().prop_map(|number| Scalar::unsigned(number.into())),
            Just(Scalar::null()),
            any::<Vec<u8>>().prop_map(Scalar::octets),
            any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(Scalar::double),
            any::<bool>().prop_map(Scalar::bool),
            any::<String>().prop_map(|text| Scalar::string(text, Some(45))),
        ]
    }

    proptest! {
        #[test]
        fn a_value_goes_through_the_engine_unchanged(scalar in scalar()) {
            let db = Connection::open_in_memory().expect("there is memory");
            let value = scalar.value().expect("it has its member");
            let bound = to_sql(value).expect("it is a value");
            let back: Value = db.query_row("select ?", [bound], |row| row.get(0)).expect("one row");
            let expected = match value {
                ScalarValue::Signed(number) => Value::Integer(number),
                ScalarValue::Unsigned(number) => Value::Integer(number as i64),
                ScalarValue::Octets(bytes) => Value::Blob(bytes.to_vec()),
                ScalarValue::Double(number) => Value::Real(number),
                ScalarValue::Bool(is) => Value::Integer(is.into()),
                ScalarValue::String(text, _) => {
                    Value::Text(String::from_utf8(text.to_vec()).expect("it was text"))
                }
                _ => Value::Null,
            };
            prop_assert_eq!(back, expected);
        }
    }
}
