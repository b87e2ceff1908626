//! Values of expressions, as MySQL computes them.
//!
//! NULL in, NULL out, but for `&&`, `||`, `<=>`, `is` and `is_not`. Division by zero is NULL. Texts
//! are compared byte by byte; beside a number they are the number at their start.

use std::cmp::Ordering;

use epoll_group::session::SessionError;

use super::exact::Exact;
use super::expr::{Compare, Expr, Node, Relation};
use super::infer::Op;
use super::refuse;
use super::value::{Num, Val};
use crate::node::columns::Type;

impl Expr {
    /// The value over a row of the fields that the expression was made for.
    pub(super) fn eval<'v>(&'v self, row: &'v [Val<'_>]) -> Result<Val<'v>, SessionError> {
        Ok(match &self.node {
            Node::Value(value) => value.borrow(),
            Node::Column(at) => row.get(*at).map_or(Val::Null, Val::borrow),
            Node::Compare(compare, operands) => {
                let [left, right] = &**operands;
                let (left, right) = (left.eval(row)?, right.eval(row)?);
                truth(compare.holds(&left, &right)?)
            }
            Node::Arithmetic(op, operands) => {
                let [left, right] = &**operands;
                let left = left.eval(row)?;
                if left.is_null() {
                    return Ok(Val::Null);
                }
                arithmetic(*op, &self.ty, &left, &right.eval(row)?)?
            }
            Node::And(operands) => truth(self.all(operands, row, false)?),
            Node::Or(operands) => truth(self.all(operands, row, true)?),
            Node::Not(operand) => truth(operand.eval(row)?.truth().map(|holds| !holds)),
            Node::IsNull(operand) => truth(Some(operand.eval(row)?.is_null())),
            Node::IsNotNull(operand) => truth(Some(!operand.eval(row)?.is_null())),
        })
    }

    /// `decisive` if one operand is that; otherwise NULL if one is NULL.
    fn all(
        &self,
        operands: &[Self],
        row: &[Val<'_>],
        decisive: bool,
    ) -> Result<Option<bool>, SessionError> {
        let mut result = Some(!decisive);
        for operand in operands {
            match operand.eval(row)?.truth() {
                Some(holds) if holds == decisive => return Ok(Some(decisive)),
                Some(_) => {}
                None => result = None,
            }
        }
        Ok(result)
    }
}

impl Compare {
    fn holds(&self, left: &Val<'_>, right: &Val<'_>) -> Result<Option<bool>, SessionError> {
        if left.is_null() || right.is_null() {
            let same = left.is_null() && right.is_null();
            return Ok((self.op == Relation::Same).then_some(same));
        }
        let order = compare(left, right, self.moment.as_ref())?;
        Ok(Some(match self.op {
            Relation::Less => order.is_lt(),
            Relation::LessOrEqual => order.is_le(),
            Relation::Equal | Relation::Same => order.is_eq(),
            Relation::NotEqual => order.is_ne(),
            Relation::GreaterOrEqual => order.is_ge(),
            Relation::Greater => order.is_gt(),
        }))
    }
}

/// Compares two values, neither of which is NULL.
pub(super) fn compare(
    left: &Val<'_>,
    right: &Val<'_>,
    moment: Option<&Type>,
) -> Result<Ordering, SessionError> {
    if let Some(ty) = moment {
        return Ok(ty.moment(left)?.cmp(&ty.moment(right)?));
    }
    if let (Val::Text(left), Val::Text(right)) = (left, right) {
        return Ok(left.cmp(right));
    }
    let (left, right) = (left.number(), right.number());
    Ok(left.zip(right).map_or(Ordering::Equal, |(left, right)| left.compare(right)))
}

fn truth<'a>(holds: Option<bool>) -> Val<'a> {
    holds.map_or(Val::Null, |holds| Val::Int(holds.into()))
}

fn arithmetic<'v>(
    op: Op,
    ty: &Type,
    left: &Val<'_>,
    right: &Val<'_>,
) -> Result<Val<'v>, SessionError> {
    let (Some(left), Some(right)) = (left.number(), right.number()) else { return Ok(Val::Null) };
    let is_division = matches!(op, Op::Divide | Op::IntDivide | Op::Remainder);
    if is_division && right.compare(Num::Int(0)).is_eq() {
        return Ok(Val::Null);
    }
    let out_of_range = || {
        let kind = match ty {
            Type::Signed(_) => "BIGINT",
            Type::Unsigned(_) => "BIGINT UNSIGNED",
            Type::Double => "DOUBLE",
            _ => "DECIMAL",
        };
        refuse(format_args!("{kind} value is out of range in '{}'", op.sign()))
    };
    let value = match ty {
        Type::Double => double(op, left.to_f64(), right.to_f64()).map(Val::Double),
        Type::Signed(_) => integer(op, left, right).and_then(|v| v.try_into().ok()).map(Val::Int),
        Type::Unsigned(_) => {
            integer(op, left, right).and_then(|v| v.try_into().ok()).map(Val::Uint)
        }
        _ => {
            left.to_exact().zip(right.to_exact()).and_then(|(l, r)| exact(op, l, r)).map(Val::Exact)
        }
    };
    value.ok_or_else(out_of_range)
}

fn double(op: Op, left: f64, right: f64) -> Option<f64> {
    let value = match op {
        Op::Add => left + right,
        Op::Subtract => left - right,
        Op::Multiply => left * right,
        Op::Divide => left / right,
        Op::IntDivide => (left / right).trunc(),
        Op::Remainder => left % right,
    };
    value.is_finite().then_some(value)
}

fn integer(op: Op, left: Num, right: Num) -> Option<i128> {
    let (Some(exact_left), Some(exact_right)) = (left.to_exact(), right.to_exact()) else {
        // Only a division without fraction makes an integer of these.
        return double(op, left.to_f64(), right.to_f64()).map(|value| value as i128);
    };
    if op == Op::IntDivide {
        return exact_left.int_div(exact_right);
    }
    let (left, right) = (left.to_integer(), right.to_integer());
    match op {
        Op::Add => left.checked_add(right),
        Op::Subtract => left.checked_sub(right),
        Op::Multiply => left.checked_mul(right),
        Op::Remainder => left.checked_rem(right),
        Op::Divide | Op::IntDivide => None,
    }
}

fn exact(op: Op, left: Exact, right: Exact) -> Option<Exact> {
    match op {
        Op::Add => left.add(right),
        Op::Subtract => left.sub(right),
        Op::Multiply => left.mul(right),
        Op::Divide => left.div(right),
        Op::Remainder => left.rem(right),
        Op::IntDivide => None,
    }
}
