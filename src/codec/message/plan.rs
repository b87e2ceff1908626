//! Execution plans: building them, and reading them node by node.

mod expr;

use std::error::Error;
use std::fmt;

pub use expr::ExprNode;

use crate::codec::error::Scope;
use crate::codec::message::ScalarValue;
use crate::codec::proto::plan::{
    Aggr, AggrType, AnyPlan, ExecPlan, Expr, Filter, GetExpr, GetPlan, IndexInfo, KeyExpr,
    PlanType, Project, RangeScan, TableInfo, TableProject, TableScanPlan,
};
use crate::codec::proto::value::Scalar;

/// Content of a node of a plan.
///
/// *Shape*: borrows from the plan.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Node<'a> {
    /// Point reads by key.
    Get(&'a GetPlan),
    /// A whole table.
    TableScan(&'a TableScanPlan),
    /// Some columns of a table.
    TableProject(&'a TableProject),
    /// Expressions over rows.
    Project(&'a Project),
    /// Rows for which an expression holds.
    Filter(&'a Filter),
    /// A range of an index.
    RangeScan(&'a RangeScan),
    /// One value over all rows.
    Aggregate(&'a Aggr),
}

impl<'a> Node<'a> {
    /// Node that supplies the rows of this one; tables have none.
    #[must_use]
    pub fn input(&self) -> Option<&'a AnyPlan> {
        match self {
            Self::Get(_) | Self::TableScan(_) | Self::RangeScan(_) => None,
            Self::TableProject(node) => Some(&node.sub_read_plan),
            Self::Project(node) => Some(&node.sub_read_plan),
            Self::Filter(node) => Some(&node.sub_read_plan),
            Self::Aggregate(node) => Some(&node.sub_read_plan),
        }
    }
}

impl AnyPlan {
    /// Returns the content of the node.
    ///
    /// # Errors
    ///
    /// [`PlanError::Node`] when the member that the type names is absent. The request ends.
    pub fn node(&self) -> Result<Node<'_>, PlanError> {
        let node = match self.plan_type {
            PlanType::Get => self.get_plan.as_ref().map(Node::Get),
            PlanType::TableScan => self.table_scan_plan.as_ref().map(Node::TableScan),
            PlanType::TableProject => self.table_project.as_deref().map(Node::TableProject),
            PlanType::Project => self.project.as_deref().map(Node::Project),
            PlanType::Filter => self.filter.as_deref().map(Node::Filter),
            PlanType::RangeScan => self.range_scan.as_ref().map(Node::RangeScan),
            PlanType::Aggr => self.aggr.as_deref().map(Node::Aggregate),
        };
        node.ok_or(PlanError::Node { kind: self.plan_type as i32 })
    }

    /// Point reads by key. Servers use the first key alone.
    #[must_use]
    pub fn get(
        table: TableInfo,
        index: Option<IndexInfo>,
        keys: impl IntoIterator<Item = GetExpr>,
    ) -> Self {
        let keys = keys.into_iter().collect();
        let node = GetPlan { table_info: table, index_info: index, keys };
        Self { get_plan: Some(node), ..Self::of(PlanType::Get) }
    }

    /// A whole table in the order of an index.
    #[must_use]
    pub fn table_scan(table: TableInfo, index: Option<IndexInfo>) -> Self {
        let node = TableScanPlan { table_info: table, index_info: index, reverse: None };
        Self { table_scan_plan: Some(node), ..Self::of(PlanType::TableScan) }
    }

    /// A range of an index, from the first key to the last, both included.
    #[must_use]
    pub fn range_scan(
        table: TableInfo,
        index: Option<IndexInfo>,
        first: GetExpr,
        last: GetExpr,
    ) -> Self {
        let node = RangeScan {
            table_info: Some(table),
            index_info: index,
            key: Some(first),
            end_key: Some(last),
            ..RangeScan::default()
        };
        Self { range_scan: Some(node), ..Self::of(PlanType::RangeScan) }
    }

    /// Some columns of this plan, by number ([`Scalar::unsigned`]) or by name.
    #[must_use]
    pub fn table_project(self, fields: impl IntoIterator<Item = Scalar>) -> Self {
        let fields = fields.into_iter().collect();
        let node = TableProject { sub_read_plan: Box::new(self), fields };
        Self { table_project: Some(Box::new(node)), ..Self::of(PlanType::TableProject) }
    }

    /// Expressions over the rows of this plan, each with a name for its result.
    #[must_use]
    pub fn project(self, columns: impl IntoIterator<Item = (Scalar, Expr)>) -> Self {
        let (fields, exprs) = columns.into_iter().unzip();
        let node = Project { sub_read_plan: Box::new(self), fields, exprs };
        Self { project: Some(Box::new(node)), ..Self::of(PlanType::Project) }
    }

    /// The rows of this plan for which an expression holds.
    #[must_use]
    pub fn filter(self, expr: Expr) -> Self {
        let node = Filter { sub_read_plan: Box::new(self), expr };
        Self { filter: Some(Box::new(node)), ..Self::of(PlanType::Filter) }
    }

    /// One value over all rows of this plan. The servers of today refuse it.
    #[must_use]
    pub fn aggregate(self, function: AggrType, name: Scalar, over: Expr) -> Self {
        let node =
            Aggr { sub_read_plan: Box::new(self), r#type: function, field: name, expr: over };
        Self { aggr: Some(Box::new(node)), ..Self::of(PlanType::Aggr) }
    }

    fn of(kind: PlanType) -> Self {
        Self { plan_type: kind, ..Self::default() }
    }
}

impl TableInfo {
    /// A table by its name and that of its schema, or by placeholders of them.
    #[must_use]
    pub const fn new(name: Scalar, schema: Option<Scalar>) -> Self {
        Self { version: None, name, schema_name: schema }
    }
}

impl GetExpr {
    /// Creates a key: columns and their values, a prefix of the columns of the index in its order.
    #[must_use]
    pub fn new(columns: impl IntoIterator<Item = (Scalar, Scalar)>) -> Self {
        let key = |(field, value)| KeyExpr { field, value };
        Self { keys: columns.into_iter().map(key).collect() }
    }
}

impl ExecPlan {
    /// Request that leaves the plan to the server's cache. It lacks the plan and its text for the
    /// audit log, which is kept with the plan.
    #[must_use]
    pub fn cached(&self, digest: impl Into<Vec<u8>>) -> Self {
        // Taking the plan out first would need a mutable request. Copying the plan is the cost that
        // the cache avoids.
        Self {
            transaction: self.transaction.clone(),
            plan: None,
            plan_digest: Some(digest.into()),
            parameters: self.parameters.clone(),
            session_variables: self.session_variables.clone(),
            trace_id: self.trace_id.clone(),
            audit_str: None,
            ..*self
        }
    }

    /// Returns the value of a scalar in the plan: the parameter, if it is a placeholder.
    ///
    /// # Errors
    ///
    /// [`PlanError::Placeholder`] when there is no such parameter. The request ends.
    pub fn resolve<'a>(&'a self, scalar: &'a Scalar) -> Result<&'a Scalar, PlanError> {
        match scalar.value() {
            Ok(ScalarValue::Placeholder(position)) => self.parameter(position),
            _ => Ok(scalar),
        }
    }

    /// Returns the name of a table, schema, index or column. Clients write it to the member for
    /// strings, whatever its stated type, or send it as a parameter.
    ///
    /// # Errors
    ///
    /// [`PlanError::Placeholder`] and [`PlanError::Name`]. The request ends.
    pub fn name<'a>(&'a self, scalar: &'a Scalar) -> Result<&'a [u8], PlanError> {
        let scalar = self.resolve(scalar)?;
        let name = scalar.v_string.as_ref().or(scalar.v_identifier.as_ref());
        name.map(|name| &*name.value).ok_or(PlanError::Name { kind: scalar.r#type as i32 })
    }

    fn parameter(&self, position: u32) -> Result<&Scalar, PlanError> {
        let parameter = usize::try_from(position).ok().and_then(|at| self.parameters.get(at));
        let parameters = self.parameters.len();
        parameter.ok_or(PlanError::Placeholder { position, parameters })
    }
}

/// Fault of a decoded plan. Only the request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// A node lacks the member that its type names.
    Node {
        /// The type.
        kind: i32,
    },
    /// An expression lacks the member that its type names.
    Expr {
        /// The type.
        kind: i32,
    },
    /// There is no such parameter.
    Placeholder {
        /// Its number, from 0.
        position: u32,
        /// Number of parameters.
        parameters: usize,
    },
    /// A name is no text.
    Name {
        /// The type of the scalar.
        kind: i32,
    },
}

impl PlanError {
    /// Scope of the error: the request.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        Scope::Request
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { kind } => write!(f, "plan node of type {kind} lacks its member"),
            Self::Expr { kind } => write!(f, "expression of type {kind} lacks its member"),
            Self::Placeholder { position, parameters } => {
                write!(f, "placeholder {position} exceeds {parameters} parameters, from 0")
            }
            Self::Name { kind } => write!(f, "value of type {kind} is no name"),
        }
    }
}

impl Error for PlanError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::proto::Enumeration;
    use crate::codec::proto::plan::ExprType;

    #[test]
    fn the_request_for_the_cache_lacks_the_plan_and_its_text_alone() {
        let request = ExecPlan {
            plan: Some(AnyPlan::default()),
            audit_str: Some(b"scan t".to_vec()),
            trace_id: Some(b"id".to_vec()),
            token: Some(10_240),
            reset_error: Some(false),
            ..ExecPlan::default()
        };
        let cached = request.cached(*b"key");
        assert_eq!((&cached.plan, cached.plan_digest.as_deref()), (&None, Some(&b"key"[..])));
        let again = ExecPlan {
            plan: request.plan.clone(),
            audit_str: request.audit_str.clone(),
            plan_digest: None,
            ..cached
        };
        assert_eq!(again, request);
    }

    #[test]
    fn placeholders_without_a_parameter_are_errors() {
        let request = ExecPlan { parameters: vec![Scalar::null()], ..ExecPlan::default() };
        let error = PlanError::Placeholder { position: 1, parameters: 1 };
        assert_eq!(request.resolve(&Scalar::placeholder(1)), Err(error));
        assert_eq!(request.name(&Scalar::placeholder(1)), Err(error));
        assert_eq!(error.to_string(), "placeholder 1 exceeds 1 parameters, from 0");
        assert_eq!(request.resolve(&Scalar::placeholder(0)), Ok(&Scalar::null()));
        assert_eq!(request.resolve(&Scalar::signed(7)), Ok(&Scalar::signed(7)));
    }

    #[test]
    fn a_placeholder_without_a_number_is_parameter_0() {
        let request = ExecPlan { parameters: vec![Scalar::signed(7)], ..ExecPlan::default() };
        let scalar = Scalar { v_position: None, ..Scalar::placeholder(1) };
        assert_eq!(request.resolve(&scalar), Ok(&Scalar::signed(7)));
        assert_eq!(scalar.value(), Ok(ScalarValue::Placeholder(0)));
        let expr = Expr { position: None, ..Expr::placeholder(1) };
        assert_eq!(expr.node(), Ok(ExprNode::Placeholder(0)));
        let error = PlanError::Placeholder { position: 0, parameters: 0 };
        assert_eq!(ExecPlan::default().resolve(&scalar), Err(error));
    }

    #[test]
    fn nodes_and_expressions_without_their_member_are_errors() {
        for number in 0..=10 {
            if let Some(kind) = PlanType::from_number(number) {
                let plan = AnyPlan { plan_type: kind, ..AnyPlan::default() };
                assert_eq!(plan.node(), Err(PlanError::Node { kind: number }));
            }
            let kind = ExprType::from_number(number).filter(|kind| *kind != ExprType::Placeholder);
            if let Some(kind) = kind {
                let expr = Expr { r#type: kind, ..Expr::default() };
                assert_eq!(expr.node(), Err(PlanError::Expr { kind: number }));
            }
        }
    }

    #[test]
    fn names_are_read_from_strings_whatever_their_type() {
        let parameters = vec![Scalar::plan_identifier("t1"), Scalar::signed(1)];
        let request = ExecPlan { parameters, ..ExecPlan::default() };
        assert_eq!(request.name(&Scalar::placeholder(0)), Ok(b"t1".as_slice()));
        assert_eq!(request.name(&Scalar::identifier("t2")), Ok(b"t2".as_slice()));
        assert_eq!(request.name(&Scalar::placeholder(1)), Err(PlanError::Name { kind: 1 }));
    }
}
