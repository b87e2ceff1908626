//! Expressions of plans.

use super::PlanError;
use crate::codec::proto::plan::{
    Array, ColumnIdentifier, Expr, ExprType, FunctionCall, Identifier, Object, ObjectField,
    Operator,
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

impl<'a> ExprNode<'a> {
    /// Operands of this expression.
    pub fn operands(&self) -> impl Iterator<Item = &'a Expr> + use<'a> {
        let (listed, named): (&[Expr], &[ObjectField]) = match *self {
            Self::Call(call) => (&call.param, &[]),
            Self::Operator(operator) => (&operator.param, &[]),
            Self::Array(array) => (&array.value, &[]),
            Self::Object(object) => (&[], &object.fld),
            _ => (&[], &[]),
        };
        listed.iter().chain(named.iter().map(|field| &field.value))
    }
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

    /// A column by name.
    #[must_use]
    pub fn column(column: ColumnIdentifier) -> Self {
        Self { identifier: Some(column), ..Self::of(ExprType::Ident) }
    }

    /// A literal with this value.
    #[must_use]
    pub fn literal(value: Scalar) -> Self {
        Self { literal: Some(value), ..Self::of(ExprType::Literal) }
    }

    /// A variable.
    #[must_use]
    pub fn named_variable(name: impl Into<Vec<u8>>) -> Self {
        Self { variable: Some(name.into()), ..Self::of(ExprType::Variable) }
    }

    /// A function of expressions.
    #[must_use]
    pub fn call(name: impl Into<Vec<u8>>, params: impl IntoIterator<Item = Self>) -> Self {
        let name = Identifier { name: name.into(), schema_name: None };
        let call = FunctionCall { name, param: params.into_iter().collect() };
        Self { function_call: Some(call), ..Self::of(ExprType::FuncCall) }
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

    /// Expressions by name.
    #[must_use]
    pub fn object(fields: impl IntoIterator<Item = (Vec<u8>, Self)>) -> Self {
        let field = |(key, value)| ObjectField { key, value };
        let object = Object { fld: fields.into_iter().map(field).collect() };
        Self { object: Some(object), ..Self::of(ExprType::Object) }
    }

    /// Expressions in order.
    #[must_use]
    pub fn array(values: impl IntoIterator<Item = Self>) -> Self {
        let array = Array { value: values.into_iter().collect() };
        Self { array: Some(array), ..Self::of(ExprType::Array) }
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
