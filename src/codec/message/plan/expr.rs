//! Expressions of plans.

use super::PlanError;
use crate::codec::proto::plan::{
    Array, ColumnIdentifier, Expr, ExprType, FunctionCall, Object, Operator,
};
use crate::codec::proto::value::Scalar;

/// Content of an expression.
///
/// *Shape*: borrows from the expression.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ExprNode<'a> {
    /// A column by name. The servers of today crash on it; never pass it to one.
    Column(&'a ColumnIdentifier),
    /// A value.
    Literal(&'a Scalar),
    /// A variable.
    Variable(&'a [u8]),
    /// A function of expressions.
    Call(&'a FunctionCall),
    /// An operator on expressions.
    Operator(&'a Operator),
    /// A parameter by number, from 0.
    Placeholder(u32),
    /// Expressions by name. The servers of today crash on it, as on [`Self::Column`].
    Object(&'a Object),
    /// Expressions in order. The servers of today crash on it, as on [`Self::Column`].
    Array(&'a Array),
    /// A column by number, from 0.
    Reference(u32),
}

impl Expr {
    /// Returns the content of the expression. The absent number of a placeholder is 0.
    ///
    /// # Errors
    ///
    /// [`PlanError::Expr`] when the member that the type names is absent. The request ends.
    pub fn node(&self) -> Result<ExprNode<'_>, PlanError> {
        let node = match self.r#type {
            ExprType::Ident => self.identifier.as_ref().map(ExprNode::Column),
            ExprType::Literal => self.literal.as_ref().map(ExprNode::Literal),
            ExprType::Variable => self.variable.as_deref().map(ExprNode::Variable),
            ExprType::FuncCall => self.function_call.as_ref().map(ExprNode::Call),
            ExprType::Operator => self.operator.as_ref().map(ExprNode::Operator),
            ExprType::Placeholder => Some(ExprNode::Placeholder(self.position.unwrap_or(0))),
            ExprType::Object => self.object.as_ref().map(ExprNode::Object),
            ExprType::Array => self.array.as_ref().map(ExprNode::Array),
            ExprType::Ref => self.ref_id.map(ExprNode::Reference),
        };
        node.ok_or(PlanError::Expr { kind: self.r#type as i32 })
    }

    /// A literal with this value.
    #[must_use]
    pub fn literal(value: Scalar) -> Self {
        Self { literal: Some(value), ..Self::of(ExprType::Literal) }
    }

    /// An operator on expressions, by its sign: `+ - * / div % > >= < <= == <=> != && || ! is
    /// is_not`.
    #[must_use]
    pub fn operator(sign: impl Into<Vec<u8>>, operands: impl IntoIterator<Item = Self>) -> Self {
        let operator = Operator { name: sign.into(), param: operands.into_iter().collect() };
        Self { operator: Some(operator), ..Self::of(ExprType::Operator) }
    }

    /// The parameter of this number, from 0.
    #[must_use]
    pub fn placeholder(position: u32) -> Self {
        Self { position: Some(position), ..Self::of(ExprType::Placeholder) }
    }

    /// The column of this number, from 0.
    #[must_use]
    pub fn reference(column: u32) -> Self {
        Self { ref_id: Some(column), ..Self::of(ExprType::Ref) }
    }

    fn of(kind: ExprType) -> Self {
        Self { r#type: kind, ..Self::default() }
    }
}
