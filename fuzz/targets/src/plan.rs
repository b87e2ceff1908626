//! Execution plans. Reading a body does not panic, and a walk over its nodes takes little memory. Plans
//! built from the bytes come back from their encoding, and the walk reaches their last node.
//!
//! ```text
//! part = 0 │ body of an EXEC_PLAN_READ
//!      | 1 │ recipe of a plan
//! ```

use arbitrary::{Result, Unstructured};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientKind, ClientMessage, ExprNode, Node, PlanError};
use epoll_group::codec::proto::plan::{
    AggrType, AnyPlan, Array, ExecPlan, Expr, ExprType, FunctionCall, GetExpr, Identifier,
    IndexInfo, ObjectField, TableInfo,
};
use epoll_group::codec::proto::value::Scalar;

use crate::memory::bounded;

const OVERHEAD_BYTES: u32 = 16 << 10;
/// Depth of the built plans and of their expressions, within the depth limit of messages.
const MAX_NODES: u32 = 20;

pub(crate) fn check(input: &[u8]) {
    match input {
        [0, body @ ..] => bounded(body.len(), || read(body)),
        [_, recipe @ ..] => built(recipe),
        [] => {}
    }
}

fn read(body: &[u8]) {
    let mut limits = Limits::default();
    limits.overhead_bytes = OVERHEAD_BYTES;
    let message = ClientMessage::decode(ClientKind::ExecPlan.number(), body, &limits);
    if let Ok(ClientMessage::ExecPlan(plan)) = message {
        let _ = plan.plan.as_ref().map_or(Ok(()), |node| walk(&plan, node));
    }
}

fn built(recipe: &[u8]) {
    let mut recipe = Unstructured::new(recipe);
    let mut built = Built::default();
    let Ok(plan) = built.plan(&mut recipe, MAX_NODES) else {
        return;
    };
    let parameters = (0..built.placeholders).map(|number| Scalar::unsigned(number.into()));
    let mut request = ExecPlan { plan: Some(plan), ..ExecPlan::default() };
    request.parameters = parameters.collect();
    assert_eq!(walk(&request, request.plan.as_ref().expect("it was just set")), Ok(()));

    let message = ClientMessage::ExecPlan(Box::new(request));
    let mut body = Vec::new();
    message.encode_body(&mut body);
    let decoded = ClientMessage::decode(message.kind(), &body, &Limits::default());
    assert_eq!(decoded.as_ref(), Ok(&message));
}

/// Reads all nodes and names, and resolves every placeholder that stands for a value.
fn walk(request: &ExecPlan, plan: &AnyPlan) -> std::result::Result<(), PlanError> {
    let node = plan.node()?;
    match node {
        Node::Get(get) => {
            let _ = request.name(&get.table_info.name);
            for part in get.keys.iter().flat_map(|key| &key.keys) {
                request.resolve(&part.value)?;
            }
        }
        Node::Filter(filter) => expr(request, &filter.expr)?,
        Node::Project(project) => {
            project.exprs.iter().try_for_each(|operand| expr(request, operand))?;
        }
        Node::Aggregate(aggregate) => expr(request, &aggregate.expr)?,
        _ => {}
    }
    node.input().map_or(Ok(()), |input| walk(request, input))
}

fn expr(request: &ExecPlan, found: &Expr) -> std::result::Result<(), PlanError> {
    let node = found.node()?;
    if let ExprNode::Literal(literal) = node {
        request.resolve(literal)?;
    }
    let (listed, named): (&[Expr], &[ObjectField]) = match node {
        ExprNode::Call(call) => (&call.param, &[]),
        ExprNode::Operator(operator) => (&operator.param, &[]),
        ExprNode::Array(array) => (&array.value, &[]),
        ExprNode::Object(object) => (&[], &object.fld),
        _ => (&[], &[]),
    };
    let mut operands = listed.iter().chain(named.iter().map(|field| &field.value));
    operands.try_for_each(|operand| expr(request, operand))
}

/// State of a plan under construction.
#[derive(Default)]
struct Built {
    placeholders: u32,
}

impl Built {
    fn plan(&mut self, recipe: &mut Unstructured<'_>, nodes: u32) -> Result<AnyPlan> {
        // Once the recipe is at its end it says 0, over and over: a table.
        let choice = if nodes == 0 { 0 } else { recipe.int_in_range(0..=6_u8)? };
        if choice < 3 {
            let schema = if recipe.arbitrary()? { Some(self.scalar(recipe)?) } else { None };
            let table = TableInfo::new(self.scalar(recipe)?, schema);
            let index = if recipe.arbitrary()? {
                Some(IndexInfo { name: self.scalar(recipe)?, use_parts: None })
            } else {
                None
            };
            return Ok(match choice {
                0 => AnyPlan::table_scan(table, index),
                1 => AnyPlan::get(table, index, [self.key(recipe)?]),
                _ => AnyPlan::range_scan(table, index, self.key(recipe)?, self.key(recipe)?),
            });
        }
        let input = self.plan(recipe, nodes - 1)?;
        Ok(match choice {
            3 => input.table_project([self.scalar(recipe)?]),
            4 => input.project([(self.scalar(recipe)?, self.expr(recipe, nodes)?)]),
            5 => input.filter(self.expr(recipe, nodes)?),
            _ => {
                let name = self.scalar(recipe)?;
                input.aggregate(AggrType::CountFunc, name, self.expr(recipe, nodes)?)
            }
        })
    }

    fn key(&mut self, recipe: &mut Unstructured<'_>) -> Result<GetExpr> {
        let count = recipe.int_in_range(0..=3_usize)?;
        let mut parts = Vec::new();
        for _ in 0..count {
            parts.push((self.scalar(recipe)?, self.scalar(recipe)?));
        }
        Ok(GetExpr::new(parts))
    }

    fn expr(&mut self, recipe: &mut Unstructured<'_>, depth: u32) -> Result<Expr> {
        let choice = if depth == 0 { 0 } else { recipe.int_in_range(0..=6_u8)? };
        Ok(match choice {
            0 => Expr::reference(recipe.arbitrary()?),
            1 => Expr::literal(self.scalar(recipe)?),
            2 => {
                let variable = Some(recipe.arbitrary()?);
                Expr { r#type: ExprType::Variable, variable, ..Expr::default() }
            }
            3 => Expr::placeholder(self.placeholder()),
            4 => Expr::operator("+", [self.expr(recipe, depth - 1)?]),
            5 => {
                let name = Identifier { name: recipe.arbitrary()?, schema_name: None };
                let param = vec![self.expr(recipe, depth - 1)?, self.expr(recipe, depth - 1)?];
                let function_call = Some(FunctionCall { name, param });
                Expr { r#type: ExprType::FuncCall, function_call, ..Expr::default() }
            }
            _ => {
                let array = Some(Array { value: vec![self.expr(recipe, depth - 1)?] });
                Expr { r#type: ExprType::Array, array, ..Expr::default() }
            }
        })
    }

    fn scalar(&mut self, recipe: &mut Unstructured<'_>) -> Result<Scalar> {
        Ok(match recipe.int_in_range(0..=8_u8)? {
            0 => Scalar::null(),
            1 => Scalar::signed(recipe.arbitrary()?),
            2 => Scalar::unsigned(recipe.arbitrary()?),
            // NaN is not equal to itself.
            3 => Scalar::double(f64::from(recipe.arbitrary::<i32>()?)),
            4 => Scalar::octets(recipe.arbitrary::<Vec<u8>>()?),
            5 => Scalar::string(recipe.arbitrary::<Vec<u8>>()?, recipe.arbitrary()?),
            6 => Scalar::bool(recipe.arbitrary()?),
            7 => Scalar::plan_identifier(recipe.arbitrary::<Vec<u8>>()?),
            _ => Scalar::placeholder(self.placeholder()),
        })
    }

    /// Each placeholder has a parameter of its own.
    fn placeholder(&mut self) -> u32 {
        let number = self.placeholders;
        self.placeholders += 1;
        number
    }
}
