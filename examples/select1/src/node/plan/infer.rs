//! Types of expressions, found before there are rows: the client gets the types first.

use epoll_group::codec::message::ScalarValue;
use epoll_group::codec::proto::value::Scalar;
use epoll_group::session::SessionError;

use super::exact::QUOTIENT_DIGITS;
use super::refuse;
use super::value::Val;
use crate::node::columns::Type;

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
        Val::Null => Type::Null,
        Val::Int(_) => Type::BIGINT,
        Val::Uint(_) => Type::BIGINT_UNSIGNED,
        Val::Exact(_) | Val::Double(_) => Type::Double,
        Val::Text(text) => {
            let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
            let is_octets = matches!(scalar.value(), Ok(ScalarValue::Octets(_)));
            if is_octets { Type::VarBinary(length) } else { Type::VarChar(length) }
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
    let is_time = |ty: &Type| matches!(ty, Type::Time(_));
    let fits = other.is_textual()
        || *other == Type::Null
        || (other.is_temporal() && is_time(other) == is_time(temporal));
    if fits { Ok(Some(*temporal)) } else { Err(refuse("a point in time beside a number")) }
}

/// The type of `left op right`.
pub(super) fn arithmetic(op: Op, left: &Type, right: &Type) -> Result<Type, SessionError> {
    if left.is_temporal() || right.is_temporal() {
        return Err(refuse(format_args!("operator '{}' of a point in time", op.sign())));
    }
    // With NULL the result is NULL, and its type that of the other operand.
    let (left, right) = match (left, right) {
        (Type::Null, Type::Null) => return Ok(Type::BIGINT),
        (Type::Null, _) => (right, right),
        (_, Type::Null) => (left, left),
        _ => (left, right),
    };
    let integer = |is_unsigned| if is_unsigned { Type::BIGINT_UNSIGNED } else { Type::BIGINT };
    let either = left.is_unsigned() || right.is_unsigned();
    let integers = left.is_integer() && right.is_integer();
    if op == Op::IntDivide {
        return Ok(integer(either));
    }
    if left.is_inexact() || right.is_inexact() {
        return Ok(Type::Double);
    }
    let whole = |ty: &Type| ty.digits().saturating_sub(ty.scale());
    let most = whole(left).max(whole(right));
    let scale = left.scale().max(right.scale());
    Ok(match op {
        Op::Divide => {
            let more = QUOTIENT_DIGITS.saturating_add(right.scale());
            let digits = left.digits().saturating_add(more);
            Type::exact(digits, left.scale().saturating_add(QUOTIENT_DIGITS))
        }
        Op::Remainder if integers => integer(left.is_unsigned()),
        _ if integers => integer(either),
        Op::Multiply => {
            let digits = left.digits().saturating_add(right.digits());
            Type::exact(digits, left.scale().saturating_add(right.scale()))
        }
        Op::Remainder => Type::exact(most.saturating_add(scale), scale),
        _ => Type::exact(most.saturating_add(scale).saturating_add(1), scale),
    })
}
