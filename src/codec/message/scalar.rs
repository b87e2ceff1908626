//! Scalars by their meaning: arguments of statements, names and literals of plans.

use std::error::Error;
use std::fmt;

use crate::codec::error::Scope;
use crate::codec::proto::value::{
    Any, AnyType, Array, Object, Octets, Scalar, ScalarString, ScalarType,
};

/// Meaning of a scalar.
///
/// *Shape*: borrows its bytes from the scalar. Texts are in the character set of their collation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ScalarValue<'a> {
    /// Signed integer.
    Signed(i64),
    /// Unsigned integer.
    Unsigned(u64),
    /// NULL.
    Null,
    /// Binary string.
    Octets(&'a [u8]),
    /// Number of 64 bits.
    Double(f64),
    /// Number of 32 bits.
    Float(f32),
    /// Truth value.
    Bool(bool),
    /// Text and its MySQL collation number.
    String(&'a [u8], Option<u64>),
    /// Number of a parameter, from 0.
    Placeholder(u32),
    /// Name in a statement or plan.
    Identifier(&'a [u8]),
    /// Text that goes into a statement unchanged. A server that splices it trusts the peer with the
    /// statement.
    RawString(&'a [u8]),
}

/// A scalar or an `Any` without the member that its type names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScalarError {
    /// The type.
    pub kind: i32,
}

impl ScalarError {
    /// Scope of the error: the request that has the scalar.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        Scope::Request
    }
}

impl fmt::Display for ScalarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "value of type {} lacks its member", self.kind)
    }
}

impl Error for ScalarError {}

impl Scalar {
    /// Returns the meaning of the scalar.
    ///
    /// An identifier is taken from the member for identifiers or from that for strings, because
    /// existing clients write it to either. The absent number of a placeholder is 0.
    ///
    /// # Errors
    ///
    /// [`ScalarError`] when the member that the type names is absent. The request ends.
    pub fn value(&self) -> Result<ScalarValue<'_>, ScalarError> {
        let value = match self.r#type {
            ScalarType::VSint => self.v_signed_int.map(ScalarValue::Signed),
            ScalarType::VUint => self.v_unsigned_int.map(ScalarValue::Unsigned),
            ScalarType::VNull => Some(ScalarValue::Null),
            ScalarType::VOctets => self.v_octets.as_ref().map(|o| ScalarValue::Octets(&o.value)),
            ScalarType::VDouble => self.v_double.map(ScalarValue::Double),
            ScalarType::VFloat => self.v_float.map(ScalarValue::Float),
            ScalarType::VBool => self.v_bool.map(ScalarValue::Bool),
            ScalarType::VString => {
                self.v_string.as_ref().map(|s| ScalarValue::String(&s.value, s.collation))
            }
            ScalarType::VPlaceholder => {
                Some(ScalarValue::Placeholder(self.v_position.unwrap_or(0)))
            }
            ScalarType::VIdentifier => {
                let name = self.v_identifier.as_ref().or(self.v_string.as_ref());
                name.map(|s| ScalarValue::Identifier(&s.value))
            }
            ScalarType::VIdentifierGalaxy => {
                self.v_identifier_galaxy.as_ref().map(|s| ScalarValue::Identifier(&s.value))
            }
            ScalarType::VRawString => {
                self.v_string.as_ref().map(|s| ScalarValue::RawString(&s.value))
            }
        };
        value.ok_or(ScalarError { kind: self.r#type as i32 })
    }

    /// A signed integer.
    #[must_use]
    pub fn signed(value: i64) -> Self {
        Self { v_signed_int: Some(value), ..Self::of(ScalarType::VSint) }
    }

    /// An unsigned integer.
    #[must_use]
    pub fn unsigned(value: u64) -> Self {
        Self { v_unsigned_int: Some(value), ..Self::of(ScalarType::VUint) }
    }

    /// NULL.
    #[must_use]
    pub fn null() -> Self {
        Self::of(ScalarType::VNull)
    }

    /// A binary string.
    #[must_use]
    pub fn octets(value: impl Into<Vec<u8>>) -> Self {
        let octets = Octets { value: value.into(), content_type: None };
        Self { v_octets: Some(octets), ..Self::of(ScalarType::VOctets) }
    }

    /// A number of 64 bits.
    #[must_use]
    pub fn double(value: f64) -> Self {
        Self { v_double: Some(value), ..Self::of(ScalarType::VDouble) }
    }

    /// A number of 32 bits.
    #[must_use]
    pub fn float(value: f32) -> Self {
        Self { v_float: Some(value), ..Self::of(ScalarType::VFloat) }
    }

    /// A truth value.
    #[must_use]
    pub fn bool(value: bool) -> Self {
        Self { v_bool: Some(value), ..Self::of(ScalarType::VBool) }
    }

    /// A text, and the number of its MySQL collation if the peer is to know it.
    #[must_use]
    pub fn string(value: impl Into<Vec<u8>>, collation: Option<u64>) -> Self {
        let string = ScalarString { value: value.into(), collation };
        Self { v_string: Some(string), ..Self::of(ScalarType::VString) }
    }

    /// Text that goes into a statement unchanged.
    #[must_use]
    pub fn raw_string(value: impl Into<Vec<u8>>) -> Self {
        let string = ScalarString { value: value.into(), collation: None };
        Self { v_string: Some(string), ..Self::of(ScalarType::VRawString) }
    }

    /// The parameter of this number, from 0.
    #[must_use]
    pub fn placeholder(position: u32) -> Self {
        Self { v_position: Some(position), ..Self::of(ScalarType::VPlaceholder) }
    }

    /// A name in a statement.
    #[must_use]
    pub fn identifier(value: impl Into<Vec<u8>>) -> Self {
        let string = ScalarString { value: value.into(), collation: None };
        Self { v_identifier: Some(string), ..Self::of(ScalarType::VIdentifier) }
    }

    /// A name in a plan, where servers look for it in the member for strings.
    #[must_use]
    pub fn plan_identifier(value: impl Into<Vec<u8>>) -> Self {
        let string = ScalarString { value: value.into(), collation: None };
        Self { v_string: Some(string), ..Self::of(ScalarType::VIdentifier) }
    }

    fn of(kind: ScalarType) -> Self {
        Self { r#type: kind, ..Self::default() }
    }
}

/// Meaning of an [`Any`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum AnyValue<'a> {
    /// A single value.
    Scalar(&'a Scalar),
    /// Values by name.
    Object(&'a Object),
    /// Values in order.
    Array(&'a Array),
}

impl Any {
    /// Returns the meaning of the `Any`.
    ///
    /// # Errors
    ///
    /// [`ScalarError`] when the member that the type names is absent. The request ends.
    pub fn value(&self) -> Result<AnyValue<'_>, ScalarError> {
        let value = match self.r#type {
            AnyType::Scalar => self.scalar.as_ref().map(AnyValue::Scalar),
            AnyType::Object => self.obj.as_ref().map(AnyValue::Object),
            AnyType::Array => self.array.as_ref().map(AnyValue::Array),
        };
        value.ok_or(ScalarError { kind: self.r#type as i32 })
    }
}

impl From<Scalar> for Any {
    fn from(scalar: Scalar) -> Self {
        Self { r#type: AnyType::Scalar, scalar: Some(scalar), ..Self::default() }
    }
}

#[cfg(test)]
#[expect(clippy::expect_used, reason = "a test may panic on its own mistakes")]
mod tests {
    use super::*;
    use crate::codec::proto::Enumeration;

    #[test]
    fn what_is_made_reads_back() {
        let cases = [
            (Scalar::signed(i64::MIN), ScalarValue::Signed(i64::MIN)),
            (Scalar::unsigned(u64::MAX), ScalarValue::Unsigned(u64::MAX)),
            (Scalar::null(), ScalarValue::Null),
            (Scalar::octets(*b"\0\xff"), ScalarValue::Octets(b"\0\xff")),
            (Scalar::double(-0.5), ScalarValue::Double(-0.5)),
            (Scalar::float(1.5), ScalarValue::Float(1.5)),
            (Scalar::bool(true), ScalarValue::Bool(true)),
            (Scalar::string("x", Some(45)), ScalarValue::String(b"x", Some(45))),
            (Scalar::raw_string("now()"), ScalarValue::RawString(b"now()")),
            (Scalar::placeholder(0), ScalarValue::Placeholder(0)),
            (Scalar::identifier("t"), ScalarValue::Identifier(b"t")),
            (Scalar::plan_identifier("t"), ScalarValue::Identifier(b"t")),
        ];
        for (scalar, value) in cases {
            assert_eq!(scalar.value(), Ok(value));
            assert_eq!(Any::from(scalar.clone()).value(), Ok(AnyValue::Scalar(&scalar)));
        }
    }

    #[test]
    fn a_type_without_its_member_is_an_error() {
        for kind in [1, 2, 4, 5, 6, 7, 8, 10, 11, 21] {
            let r#type = ScalarType::from_number(kind).expect("it is listed");
            let scalar = Scalar { r#type, ..Scalar::default() };
            assert_eq!(scalar.value(), Err(ScalarError { kind }));
        }
        assert_eq!(Any::default().value(), Err(ScalarError { kind: 1 }));
    }
}
