//! Expressions of plans, typed and ready to be computed.

use epoll_group::codec::message::{ExprNode, PlanError};
use epoll_group::codec::proto::plan::{ExecPlan, Expr as Message, Operator};
use epoll_group::codec::proto::value::Scalar;
use epoll_group::session::SessionError;

use super::infer::{self, Op};
use super::types::type_of;
use super::value::Val;
use super::{malformed, refuse};
use crate::node::columns::{Description, Type};

/// An expression over rows of certain fields.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    pub(super) node: Node,
    pub(super) ty: Type,
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    Value(Val<'static>),
    Column(usize),
    Compare(Compare, Box<[Expr; 2]>),
    Arithmetic(Op, Box<[Expr; 2]>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    IsNull(Box<Expr>),
    IsNotNull(Box<Expr>),
}

/// A comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compare {
    pub(super) op: Relation,
    /// The type as which points in time are compared.
    pub(super) moment: Option<Type>,
}

/// Relation that a comparison tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Less,
    LessOrEqual,
    Equal,
    /// NULL is equal to NULL and to nothing else.
    Same,
    NotEqual,
    GreaterOrEqual,
    Greater,
}

impl Expr {
    /// # Errors
    ///
    /// An expression is not supported, or a column or parameter is missing.
    pub(super) fn new(
        message: &ExecPlan,
        expr: &Message,
        fields: &[Description],
    ) -> Result<Self, SessionError> {
        match expr.node().map_err(malformed)? {
            ExprNode::Literal(scalar) => Self::value(message.resolve(scalar).map_err(malformed)?),
            ExprNode::Placeholder(position) => {
                let at = usize::try_from(position).ok();
                let parameters = message.parameters.len();
                let missing = PlanError::Placeholder { position, parameters };
                let scalar = at.and_then(|at| message.parameters.get(at));
                Self::value(scalar.ok_or(missing).map_err(malformed)?)
            }
            ExprNode::Reference(column) => {
                let at = usize::try_from(column).ok();
                let field = at.and_then(|at| Some((at, fields.get(at)?)));
                let (at, field) = field.ok_or_else(|| {
                    refuse(format_args!("column {column} of {}, from 0", fields.len()))
                })?;
                Ok(Self { node: Node::Column(at), ty: type_of(field) })
            }
            ExprNode::Operator(operator) => Self::operator(message, operator, fields),
            ExprNode::Call(call) => {
                Err(refuse(format_args!("no function '{}'", call.name.name.escape_ascii())))
            }
            ExprNode::Column(_) => Err(refuse("expressions of type IDENT are not supported")),
            ExprNode::Variable(_) => Err(refuse("expressions of type VARIABLE are not supported")),
            ExprNode::Object(_) => Err(refuse("expressions of type OBJECT are not supported")),
            ExprNode::Array(_) => Err(refuse("expressions of type ARRAY are not supported")),
            _ => Err(refuse("an expression of an unknown type")),
        }
    }

    fn value(scalar: &Scalar) -> Result<Self, SessionError> {
        let value = Val::of_scalar(scalar)?;
        let ty = infer::literal(scalar, &value);
        Ok(Self { node: Node::Value(value.into_owned()), ty })
    }

    fn operator(
        message: &ExecPlan,
        operator: &Operator,
        fields: &[Description],
    ) -> Result<Self, SessionError> {
        let sign = operator.name.as_slice();
        let operands = operator.param.iter().map(|operand| Self::new(message, operand, fields));
        let operands = operands.collect::<Result<Vec<_>, _>>()?;
        let count = operands.len();
        let wrong =
            || refuse(format_args!("operator '{}' of {count} operands", sign.escape_ascii()));
        match sign {
            b"&&" if count >= 2 => return Ok(Self::truth(Node::And(operands))),
            b"||" if count >= 2 => return Ok(Self::truth(Node::Or(operands))),
            b"!" => {
                let [operand] = <[Self; 1]>::try_from(operands).map_err(|_| wrong())?;
                return Ok(Self::truth(Node::Not(Box::new(operand))));
            }
            _ => {}
        }
        let operands = <[Self; 2]>::try_from(operands).map_err(|_| wrong())?;
        if let b"is" | b"is_not" = sign {
            let [operand, null] = operands;
            if !matches!(null.node, Node::Value(Val::Null)) {
                return Err(refuse(format_args!(
                    "operator '{}' with something else than NULL",
                    sign.escape_ascii()
                )));
            }
            let operand = Box::new(operand);
            let is = sign == b"is";
            return Ok(Self::truth(if is {
                Node::IsNull(operand)
            } else {
                Node::IsNotNull(operand)
            }));
        }
        let [left, right] = [&operands[0].ty, &operands[1].ty];
        if let Some(op) = relation(sign) {
            let moment = infer::moment(left, right)?;
            return Ok(Self::truth(Node::Compare(Compare { op, moment }, Box::new(operands))));
        }
        let op = infer::op(sign).ok_or_else(wrong)?;
        let ty = infer::arithmetic(op, left, right)?;
        Ok(Self { node: Node::Arithmetic(op, Box::new(operands)), ty })
    }

    fn truth(node: Node) -> Self {
        Self { node, ty: Type::BIGINT }
    }
}

fn relation(sign: &[u8]) -> Option<Relation> {
    Some(match sign {
        b"<" => Relation::Less,
        b"<=" => Relation::LessOrEqual,
        b"==" => Relation::Equal,
        b"<=>" => Relation::Same,
        b"!=" => Relation::NotEqual,
        b">=" => Relation::GreaterOrEqual,
        b">" => Relation::Greater,
        _ => return None,
    })
}
