//! Types of expressions, before there are rows: the client is told of them first.

use epoll_group::codec::message::value::Scalar;
use epoll_group::codec::scalar::ScalarValue;
use epoll_group::session::SessionError;

use super::exact::QUOTIENT_DIGITS;
use super::refuse;
use super::types::{Kind, Type};
use super::value::Val;

/// Arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Add,
    Subtract,
    Multiply,
    /// With a fraction.
    Divide,
    /// Without.
    IntDivide,
    Remainder,
}

impl Op {
    pub(super) const fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::IntDivide => "div",
            Self::Remainder => "%",
        }
    }
}

pub(super) fn op(sign: &[u8]) -> Option<Op> {
    Some(match sign {
        b"+" => Op::Add,
        b"-" => Op::Subtract,
        b"*" => Op::Multiply,
        b"/" => Op::Divide,
        b"div" => Op::IntDivide,
        b"%" => Op::Remainder,
        _ => return None,
    })
}

/// The type of a literal.
pub(super) fn literal(scalar: &Scalar, value: &Val<'_>) -> Type {
    match value {
        Val::Null => Type::null(),
        Val::Int(_) => Type::signed(),
        Val::Uint(_) => Type::unsigned(),
        Val::Exact(_) | Val::Double(_) => Type::double(),
        Val::Text(text) => {
            let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
            let is_octets = matches!(scalar.value(), Ok(ScalarValue::Octets(_)));
            if is_octets { Type::binary(length) } else { Type::text(length) }
        }
    }
}

/// The type as which two operands are compared, if they are points in time.
pub(super) fn moment(left: &Type, right: &Type) -> Result<Option<Type>, SessionError> {
    let (temporal, other) = match (left.is_temporal(), right.is_temporal()) {
        (false, false) => return Ok(None),
        (true, _) => (left, right),
        (false, true) => (right, left),
    };
    let is_time = temporal.kind == Kind::Time;
    let fits = other.is_textual()
        || other.kind == Kind::Null
        || (other.is_temporal() && (other.kind == Kind::Time) == is_time);
    if fits { Ok(Some(*temporal)) } else { Err(refuse("a point in time beside a number")) }
}

/// The type of `left op right`.
pub(super) fn arithmetic(op: Op, left: &Type, right: &Type) -> Result<Type, SessionError> {
    if left.is_temporal() || right.is_temporal() {
        return Err(refuse(format_args!("operator '{}' of a point in time", op.sign())));
    }
    // With NULL the result is NULL, and its type that of the other operand.
    let (left, right) = match (left.kind, right.kind) {
        (Kind::Null, Kind::Null) => return Ok(Type::signed()),
        (Kind::Null, _) => (right, right),
        (_, Kind::Null) => (left, left),
        _ => (left, right),
    };
    let is_unsigned = |ty: &Type| matches!(ty.kind, Kind::Unsigned | Kind::Bit);
    let is_integer = |ty: &Type| ty.kind == Kind::Signed || is_unsigned(ty);
    let integer = |is_unsigned| if is_unsigned { Type::unsigned() } else { Type::signed() };
    let either = is_unsigned(left) || is_unsigned(right);
    if op == Op::IntDivide {
        return Ok(integer(either));
    }
    if left.is_inexact() || right.is_inexact() {
        return Ok(Type::double());
    }
    let whole =
        left.digits.saturating_sub(left.scale).max(right.digits.saturating_sub(right.scale));
    let scale = left.scale.max(right.scale);
    Ok(match op {
        Op::Divide => {
            let digits = left.digits.saturating_add(QUOTIENT_DIGITS).saturating_add(right.scale);
            Type::exact(digits, left.scale.saturating_add(QUOTIENT_DIGITS))
        }
        Op::Remainder if is_integer(left) && is_integer(right) => integer(is_unsigned(left)),
        _ if is_integer(left) && is_integer(right) => integer(either),
        Op::Multiply => {
            let digits = left.digits.saturating_add(right.digits);
            Type::exact(digits, left.scale.saturating_add(right.scale))
        }
        Op::Remainder => Type::exact(whole.saturating_add(scale), scale),
        _ => Type::exact(whole.saturating_add(scale).saturating_add(1), scale),
    })
}
