//! Operators on NULL, zero and texts.

use epoll_group::codec::proto::plan::{
    Array, ColumnIdentifier, Expr, ExprType, FunctionCall, Identifier, Object,
};

use super::*;

const TABLES: &str = "create table t (x int); insert into t values (1)";

fn literal(value: &str) -> Expr {
    let scalar = match value {
        "NULL" => Scalar::null(),
        value => match (value.parse::<i64>(), value.parse::<f64>()) {
            (Ok(value), _) => Scalar::signed(value),
            (_, Ok(value)) => Scalar::double(value),
            _ => match value.strip_suffix('u').and_then(|value| value.parse().ok()) {
                Some(value) => Scalar::unsigned(value),
                None => text(value.trim_matches('\'')),
            },
        },
    };
    Expr::literal(scalar)
}

/// Returns the result of `sign` on these operands.
fn result(sign: &str, operands: &[&str]) -> String {
    let db = database(TABLES);
    let expr = Expr::operator(sign, operands.iter().map(|operand| literal(operand)));
    match run(&db, scan("t").project([(text("r"), expr)]), Vec::new()) {
        Ok(rows) => rows.rows[0][0].clone(),
        Err(error) => String::from_utf8_lossy(&error.message).replace("Executor error: ", "! "),
    }
}

#[test]
fn three_values_of_logic() {
    let values = ["NULL", "0", "1"];
    let tables = [
        ("&&", ["NULL 0 NULL", "0 0 0", "NULL 0 1"]),
        ("||", ["NULL NULL 1", "NULL 0 1", "1 1 1"]),
        ("==", ["NULL NULL NULL", "NULL 1 0", "NULL 0 1"]),
        ("!=", ["NULL NULL NULL", "NULL 0 1", "NULL 1 0"]),
        ("<=>", ["1 0 0", "0 1 0", "0 0 1"]),
        ("<", ["NULL NULL NULL", "NULL 0 1", "NULL 0 0"]),
        ("<=", ["NULL NULL NULL", "NULL 1 1", "NULL 0 1"]),
        (">", ["NULL NULL NULL", "NULL 0 0", "NULL 1 0"]),
        (">=", ["NULL NULL NULL", "NULL 1 0", "NULL 1 1"]),
        ("+", ["NULL NULL NULL", "NULL 0 1", "NULL 1 2"]),
        ("-", ["NULL NULL NULL", "NULL 0 -1", "NULL 1 0"]),
        ("*", ["NULL NULL NULL", "NULL 0 0", "NULL 0 1"]),
        ("/", ["NULL NULL NULL", "NULL NULL 0.0000m", "NULL NULL 1.0000m"]),
        ("div", ["NULL NULL NULL", "NULL NULL 0", "NULL NULL 1"]),
        ("%", ["NULL NULL NULL", "NULL NULL 0", "NULL NULL 0"]),
    ];
    for (sign, expected) in tables {
        for (left, expected) in values.iter().zip(expected) {
            let results: Vec<_> = values.iter().map(|right| result(sign, &[left, right])).collect();
            assert_eq!(results.join(" "), expected, "{left} {sign} …");
        }
    }
    let unary = |sign: &str, second: &[&str]| {
        let operands = |value| [&[value][..], second].concat();
        values.map(|value| result(sign, &operands(value))).join(" ")
    };
    assert_eq!(unary("!", &[]), "NULL 1 0");
    assert_eq!(unary("is", &["NULL"]), "1 0 0");
    assert_eq!(unary("is_not", &["NULL"]), "0 1 1");
}

#[test]
fn and_and_or_take_any_number_of_operands() {
    let cases = [
        ("&&", &["1", "2", "3"][..], "1"),
        ("&&", &["1", "NULL", "0"], "0"),
        ("&&", &["1", "NULL", "3"], "NULL"),
        ("||", &["0", "NULL", "0.5"], "1"),
        ("||", &["0", "'x'", "'0'"], "0"),
        ("||", &["0", "NULL", "0"], "NULL"),
        ("&&", &["1"], "! operator '&&' of 1 operands"),
        ("||", &[], "! operator '||' of 0 operands"),
        ("!", &["1", "1"], "! operator '!' of 2 operands"),
        ("==", &["1", "1", "1"], "! operator '==' of 3 operands"),
        ("is", &["1", "1"], "! operator 'is' with something else than NULL"),
        ("", &["1", "1"], "! operator '' of 2 operands"),
    ];
    for (sign, operands, expected) in cases {
        assert_eq!(result(sign, operands), expected, "{sign} {operands:?}");
    }
}

#[test]
fn numbers_are_as_exact_as_in_mysql() {
    let cases = [
        ("/", ["7", "2"], "3.5000m"),
        ("/", ["2", "3"], "0.6667m"),
        ("/", ["7", "2.5"], "2.8"),
        ("div", ["-7", "2"], "-3"),
        ("div", ["7.5", "2"], "3"),
        ("%", ["-7", "3"], "-1"),
        ("%", ["7", "-3"], "1"),
        ("+", ["'1x'", "1"], "2.0"),
        ("+", ["1u", "1"], "2u"),
        ("-", ["1u", "2"], "! BIGINT UNSIGNED value is out of range in '-'"),
        ("+", ["9223372036854775807", "1"], "! BIGINT value is out of range in '+'"),
        ("div", ["-9223372036854775808", "-1"], "! BIGINT value is out of range in 'div'"),
        ("%", ["-9223372036854775808", "-1"], "0"),
        (
            "*",
            ["18446744073709551615u", "18446744073709551615u"],
            "! BIGINT UNSIGNED value is out of range in '*'",
        ),
        ("*", ["1e300", "1e300"], "! DOUBLE value is out of range in '*'"),
        ("==", ["18446744073709551615u", "-1"], "0"),
        (">", ["18446744073709551615u", "-1"], "1"),
        ("==", ["'7'", "7"], "1"),
        ("==", ["'7'", "'7.0'"], "0"),
        ("<", ["'10'", "'9'"], "1"),
        ("<", ["'10'", "9"], "0"),
    ];
    for (sign, operands, expected) in cases {
        assert_eq!(result(sign, &operands), expected, "{operands:?} {sign}");
    }
}

#[test]
fn points_in_time_are_compared_as_such() {
    let db = database(
        "create table t (d date, m datetime(3), z time);
         insert into t values ('2024-02-29', '2024-02-29 00:00:00', '-01:00:00')",
    );
    let of = |sign: &str, column, other: Expr| {
        let expr = Expr::operator(sign, [Expr::reference(column), other]);
        rows(&db, scan("t").project([(text("r"), expr)]))
    };
    assert_eq!(of("==", 0, literal("'2024-02-29 00:00:00'")), ["1"]);
    assert_eq!(of("==", 1, Expr::reference(0)), ["1"]);
    assert_eq!(of("<", 1, literal("'2024-02-29 00:00:00.001'")), ["1"]);
    assert_eq!(of("<", 2, literal("'00:30:00'")), ["1"]);
    assert_eq!(of("==", 0, literal("NULL")), ["NULL"]);
    let refused = |sign: &str, left, right| {
        let expr = Expr::operator(sign, [Expr::reference(left), right]);
        refusal(&db, scan("t").filter(expr), Vec::new())
    };
    assert_eq!(refused("<", 0, literal("7")), "a point in time beside a number");
    assert_eq!(refused("<", 0, Expr::reference(2)), "a point in time beside a number");
    assert_eq!(refused("+", 0, literal("7")), "operator '+' of a point in time");
    assert_eq!(refused("<", 1, literal("'soon'")), "'soon' is no DATETIME");
}

#[test]
fn expressions_that_are_not_supported_are_refused() {
    let db = database(TABLES);
    let filter = |expr: Expr| refusal(&db, scan("t").filter(expr), Vec::new());
    let of = |kind| Expr { r#type: kind, ..Expr::default() };
    let name = Identifier { name: b"bloomfilter".into(), schema_name: None };
    let call = FunctionCall { name, param: vec![literal("1"); 5] };
    let array = Expr { array: Some(Array::default()), ..of(ExprType::Array) };
    for (expr, text) in [
        (
            Expr { identifier: Some(ColumnIdentifier::default()), ..of(ExprType::Ident) },
            "expressions of type IDENT are not supported",
        ),
        (
            Expr { object: Some(Object::default()), ..of(ExprType::Object) },
            "expressions of type OBJECT are not supported",
        ),
        (array.clone(), "expressions of type ARRAY are not supported"),
        (
            Expr { variable: Some(b"x".into()), ..of(ExprType::Variable) },
            "expressions of type VARIABLE are not supported",
        ),
        (Expr { function_call: Some(call), ..of(ExprType::FuncCall) }, "no function 'bloomfilter'"),
    ] {
        assert_eq!(filter(expr), text);
    }
    assert_eq!(filter(Expr::default()), "expression of type 1 lacks its member");
    assert_eq!(filter(Expr::reference(1)), "column 1 of 1, from 0");
    assert_eq!(filter(Expr::literal(Scalar::raw_string("1"))), "V_RAW_STRING is no value");
    assert_eq!(filter(Expr::literal(Scalar::default())), "value of type 1 lacks its member");
    let inner = Expr::operator("&&", [literal("0"), array]);
    assert_eq!(filter(inner), "expressions of type ARRAY are not supported");
    assert_eq!(
        refusal(&db, AnyPlan::default(), Vec::new()),
        "plan node of type 1 lacks its member"
    );
    let unnamed = scan("t").project([(text("a"), literal("1"))]);
    let mut two = unnamed;
    two.project.as_mut().expect("a project").exprs.push(literal("2"));
    assert_eq!(refusal(&db, two, Vec::new()), "PROJECT of 2 expressions under 1 names");
}
