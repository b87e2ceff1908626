//! Where plans go.

use epoll_group::codec::proto::plan::{AnyPlan, ExecPlan, Expr, GetExpr, TableInfo};
use epoll_group::codec::proto::value::Scalar;

use super::{NODES, catalogue, of_plan};

fn plan(column: &str, value: Scalar) -> AnyPlan {
    let table =
        TableInfo::new(Scalar::string("sbtest1", None), Some(Scalar::string("sbtest", None)));
    let key = GetExpr::new([(Scalar::string(column, None), value)]);
    AnyPlan::get(table, None, [key]).table_project([Scalar::string("c", None)])
}

#[test]
fn plans_go_to_the_node_of_their_key() {
    let node = |plan: &AnyPlan, parameters: Vec<Scalar>| {
        let message = ExecPlan { parameters, ..ExecPlan::default() };
        of_plan(plan, &message, &catalogue(), NODES).map_err(|error| error.code)
    };
    assert_eq!(node(&plan("id", Scalar::signed(5)), vec![]), Ok(Some(1)));
    assert_eq!(node(&plan("ID", Scalar::placeholder(0)), vec![Scalar::signed(6)]), Ok(Some(2)));
    assert_eq!(node(&plan("id", Scalar::null()), vec![]), Ok(None));
    assert_eq!(node(&plan("k", Scalar::signed(5)), vec![]), Err(1235));
    assert_eq!(node(&plan("id", Scalar::double(5.0)), vec![]), Err(1210));
    assert_eq!(node(&plan("id", Scalar::placeholder(3)), vec![]), Err(8001));
    let filtered = plan("id", Scalar::signed(5));
    let filtered = filtered.filter(Expr::operator(">", [Expr::reference(0), Expr::reference(0)]));
    assert_eq!(node(&filtered, vec![]), Ok(Some(1)));
    let table = || TableInfo::new(Scalar::string("sbtest1", None), None);
    assert_eq!(node(&AnyPlan::table_scan(table(), None), vec![]), Err(1235));
    let keys = [5, 6].map(|id| GetExpr::new([(Scalar::string("id", None), Scalar::signed(id))]));
    assert_eq!(node(&AnyPlan::get(table(), None, keys), vec![]), Err(1235));
    let whole =
        |name: &str| AnyPlan::table_scan(TableInfo::new(Scalar::string(name, None), None), None);
    assert_eq!(node(&whole("settings"), vec![]), Ok(Some(2)));
    assert_eq!(node(&whole("countries"), vec![]), Ok(None));
    let other = TableInfo::new(Scalar::string("other", None), None);
    assert_eq!(node(&AnyPlan::get(other, None, []), vec![]), Err(1235));
    assert_eq!(node(&AnyPlan::default(), vec![]), Err(8001));
}
