//! Check that every placeholder of a plan has a parameter.

use super::{ExprNode, Node, PlanError};
use crate::codec::message::plan::{AnyPlan, ExecPlan, Expr, GetExpr, IndexInfo, TableInfo};
use crate::codec::message::value::Scalar;

impl ExecPlan {
    /// Checks every node, expression and placeholder of the plan once, so that the code that runs
    /// the plan can rely on them. A request without a plan passes.
    ///
    /// The recursion is as deep as the plan. The depth of a decoded plan is bounded by
    /// [`Limits::depth`](crate::codec::limits::Limits::depth).
    ///
    /// # Errors
    ///
    /// [`PlanError`]. The request ends.
    pub fn check_placeholders(&self) -> Result<(), PlanError> {
        self.plan.as_ref().map_or(Ok(()), |plan| self.check_plan(plan))
    }

    fn check_plan(&self, plan: &AnyPlan) -> Result<(), PlanError> {
        let node = plan.node()?;
        match node {
            Node::Get(get) => {
                self.check_table(Some(&get.table_info), get.index_info.as_ref())?;
                get.keys.iter().try_for_each(|key| self.check_key(key))?;
            }
            Node::TableScan(scan) => {
                self.check_table(Some(&scan.table_info), scan.index_info.as_ref())?;
            }
            Node::RangeScan(scan) => {
                self.check_table(scan.table_info.as_ref(), scan.index_info.as_ref())?;
                scan.key.iter().chain(&scan.end_key).try_for_each(|key| self.check_key(key))?;
            }
            Node::TableProject(project) => self.check_scalars(&project.fields)?,
            Node::Project(project) => {
                self.check_scalars(&project.fields)?;
                project.exprs.iter().try_for_each(|expr| self.check_expr(expr))?;
            }
            Node::Filter(filter) => self.check_expr(&filter.expr)?,
            Node::Aggregate(aggregate) => {
                self.resolve(&aggregate.field)?;
                self.check_expr(&aggregate.expr)?;
            }
        }
        node.input().map_or(Ok(()), |input| self.check_plan(input))
    }

    fn check_table(
        &self,
        table: Option<&TableInfo>,
        index: Option<&IndexInfo>,
    ) -> Result<(), PlanError> {
        if let Some(table) = table {
            self.resolve(&table.name)?;
            table.schema_name.as_ref().map_or(Ok(()), |name| self.resolve(name).map(drop))?;
        }
        index.map_or(Ok(()), |index| self.resolve(&index.name).map(drop))
    }

    fn check_key(&self, key: &GetExpr) -> Result<(), PlanError> {
        key.keys.iter().try_for_each(|part| {
            self.resolve(&part.field)?;
            self.resolve(&part.value).map(drop)
        })
    }

    fn check_scalars(&self, scalars: &[Scalar]) -> Result<(), PlanError> {
        scalars.iter().try_for_each(|scalar| self.resolve(scalar).map(drop))
    }

    fn check_expr(&self, expr: &Expr) -> Result<(), PlanError> {
        let node = expr.node()?;
        match node {
            ExprNode::Placeholder(position) => self.parameter(position).map(drop)?,
            ExprNode::Literal(literal) => self.resolve(literal).map(drop)?,
            _ => {}
        }
        node.operands().try_for_each(|operand| self.check_expr(operand))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(plan: AnyPlan, parameters: usize) -> ExecPlan {
        let parameters = vec![Scalar::null(); parameters];
        ExecPlan { plan: Some(plan), parameters, ..ExecPlan::default() }
    }

    fn table() -> TableInfo {
        TableInfo::new(Scalar::string("t", None), None)
    }

    #[test]
    fn placeholders_without_a_parameter_are_found_wherever_they_are() {
        let missing = Scalar::placeholder(1);
        let inside = Expr::operator("!", [Expr::array([Expr::placeholder(1)])]);
        let by_name = Expr::object([(b"x".to_vec(), Expr::literal(missing.clone()))]);
        let key = |field: &Scalar, value: &Scalar| GetExpr::new([(field.clone(), value.clone())]);
        let (null, scan) = (Scalar::null(), AnyPlan::table_scan(table(), None));
        let function = crate::codec::message::plan::aggr::AggrType::CountFunc;
        let plans = [
            AnyPlan::table_scan(TableInfo::new(missing.clone(), None), None),
            AnyPlan::table_scan(TableInfo::new(null.clone(), Some(missing.clone())), None),
            AnyPlan::table_scan(table(), Some(IndexInfo::new(missing.clone()))),
            AnyPlan::get(table(), None, [key(&null, &missing)]),
            AnyPlan::get(table(), None, [key(&missing, &null)]),
            AnyPlan::range_scan(table(), None, key(&null, &null), key(&null, &missing)),
            AnyPlan::range_scan(table(), None, key(&null, &missing), key(&null, &null)),
            scan.clone().table_project([missing.clone()]),
            scan.clone().project([(missing.clone(), Expr::reference(0))]),
            scan.clone().project([(null.clone(), Expr::call("f", [inside.clone()]))]),
            scan.clone().filter(inside).filter(Expr::reference(0)),
            scan.clone().aggregate(function, null, by_name),
            scan.aggregate(function, missing, Expr::reference(0)),
        ];
        for plan in plans {
            let error = PlanError::Placeholder { position: 1, parameters: 1 };
            assert_eq!(request(plan.clone(), 1).check_placeholders(), Err(error), "{plan:?}");
            assert_eq!(request(plan, 2).check_placeholders(), Ok(()));
        }
        assert_eq!(ExecPlan::default().check_placeholders(), Ok(()));
    }

    #[test]
    fn nodes_and_expressions_without_their_member_are_found() {
        let empty = AnyPlan { plan_type: 8, ..AnyPlan::default() };
        let error = PlanError::Node { kind: 8 };
        let filtered = empty.filter(Expr::reference(0));
        assert_eq!(request(filtered, 0).check_placeholders(), Err(error));
        let empty = Expr { r#type: 4, ..Expr::default() };
        let filtered = AnyPlan::table_scan(table(), None).filter(empty);
        assert_eq!(request(filtered, 0).check_placeholders(), Err(PlanError::Expr { kind: 4 }));
    }

    #[test]
    fn names_are_read_from_strings_whatever_their_type() {
        let mut request = request(AnyPlan::table_scan(table(), None), 0);
        request.parameters = vec![Scalar::plan_identifier("t1"), Scalar::signed(1)];
        assert_eq!(request.name(&Scalar::placeholder(0)), Ok(b"t1".as_slice()));
        assert_eq!(request.name(&Scalar::identifier("t2")), Ok(b"t2".as_slice()));
        assert_eq!(request.name(&Scalar::placeholder(1)), Err(PlanError::Name { kind: 1 }));
        let error = PlanError::Placeholder { position: 2, parameters: 2 };
        assert_eq!(request.name(&Scalar::placeholder(2)), Err(error));
        assert_eq!(error.to_string(), "placeholder 2 exceeds 2 parameters, from 0");
    }
}
