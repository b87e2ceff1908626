//! Execution plans: the same rows as from the statement, as rows and as chunks.

use epoll_group::codec::proto::plan::AggrType;
use epoll_group::codec::proto::plan::{AnyPlan, ExecPlan, Expr, GetExpr, IndexInfo, TableInfo};
use epoll_group::codec::proto::value::Scalar;

use super::*;

const COLUMNS: [&str; 4] = ["id", "k", "c", "pad"];

fn name(name: &str) -> Scalar {
    Scalar::string(name, Some(45))
}

fn point(id: i64) -> ExecPlan {
    row_of("test", "SBTEST1", id)
}

/// A row of a table like `sbtest1`, in this schema.
pub(super) fn row_of(schema: &str, table: &str, id: i64) -> ExecPlan {
    let parameters = [table, schema].map(Scalar::plan_identifier);
    let table = TableInfo::new(Scalar::placeholder(0), Some(Scalar::placeholder(1)));
    let key = GetExpr::new([(name("id"), Scalar::placeholder(2))]);
    let index = IndexInfo { name: name("PRIMARY"), use_parts: None };
    let plan = AnyPlan::get(table, Some(index), [key]);
    ExecPlan {
        plan: Some(plan.table_project(COLUMNS.map(name))),
        parameters: [&parameters[..], &[Scalar::signed(id)]].concat(),
        ..ExecPlan::default()
    }
}

#[test]
fn a_plan_gets_what_the_statement_selects() {
    let server = Server::start();
    let mut client = server.client();
    for id in [1, 50, 100, 101] {
        let sql = format!("select id, k, c, pad from sbtest1 where id = {id}");
        let expected = client.execute(2, &sql).good();
        for chunks in [false, true] {
            let plan = ExecPlan { chunk_result: Some(chunks), ..point(id) };
            let reply = client.run_plan(2, plan).good();
            assert_eq!((&reply.columns, text(&reply)), (&expected.columns, text(&expected)));
        }
    }
}

#[test]
fn plans_and_statements_of_a_transaction_see_the_same() {
    let server = Server::start();
    let mut client = server.client();
    for sql in ["begin", "update sbtest1 set k = 4711 where id = 7"] {
        client.execute(2, sql).good();
    }
    let table = TableInfo::new(name("sbtest1"), None);
    let is_new = Expr::operator("==", [Expr::reference(1), Expr::literal(Scalar::signed(4711))]);
    let plan = AnyPlan::table_scan(table, None).filter(is_new);
    let plan = plan.aggregate(AggrType::CountFunc, name("n"), Expr::reference(0));
    let count = || ExecPlan { plan: Some(plan.clone()), ..ExecPlan::default() };
    assert_eq!(text(&client.run_plan(2, count()).good()), "1;");
    client.execute(2, "rollback").good();
    assert_eq!(text(&client.run_plan(2, count()).good()), "0;");
}

#[test]
fn a_plan_that_cannot_be_run_ends_nothing_but_itself() {
    let server = Server::start();
    let mut client = server.client();
    let mut plan = point(1);
    plan.parameters.truncate(2);
    let failure = client.run_plan(2, plan).failure();
    assert_eq!(failure.code, 8001);
    assert!(failure.text.starts_with("Executor error: placeholder 2"), "{failure:?}");
    assert_eq!(client.run_plan(2, point(1)).good().rows.len(), 1);
}
