//! Expressions against an evaluator that was written without looking at the other: no types
//! beforehand, numbers as fractions of a power of ten that is raised step by step.

use std::cmp::Ordering;

use epoll_group::codec::proto::plan::Expr;
use proptest::prelude::*;

use super::*;

/// A value, or a cell.
#[derive(Clone, Debug)]
enum Naive {
    Null,
    Int { value: i128, unsigned: bool },
    Decimal { digits: i128, scale: u32 },
    Double(f64),
    Text(String),
}

/// Why there is no value.
#[derive(Debug)]
enum Fail {
    /// Result in MySQL.
    Range,
    /// More digits than this test or what it tests computes with.
    Digits,
}

#[derive(Clone, Debug)]
enum Tree {
    Column(u32),
    Literal(Naive),
    Operator(&'static str, Vec<Self>),
}

use Naive::{Decimal, Double, Int, Null, Text};

const BINARY: [&str; 13] =
    ["+", "-", "*", "/", "div", "%", "<", "<=", ">", ">=", "==", "!=", "<=>"];

impl Tree {
    fn expr(&self) -> Expr {
        match self {
            Self::Column(at) => Expr::reference(*at),
            Self::Literal(value) => Expr::literal(match value {
                Null => Scalar::null(),
                Int { value, unsigned: true } => Scalar::unsigned(*value as u64),
                Int { value, .. } => Scalar::signed(*value as i64),
                Double(value) => Scalar::double(*value),
                Text(value) => text(value),
                Decimal { .. } => unreachable!("there are no such literals"),
            }),
            Self::Operator(sign, operands) => {
                Expr::operator(*sign, operands.iter().map(Self::expr))
            }
        }
    }

    fn eval(&self, row: &[Naive]) -> Result<Naive, Fail> {
        let Self::Operator(sign, operands) = self else {
            return Ok(match self {
                Self::Column(at) => row[*at as usize].clone(),
                Self::Literal(value) => value.clone(),
                Self::Operator(..) => unreachable!(),
            });
        };
        let truth = |holds: Option<bool>| match holds {
            Some(holds) => Int { value: holds.into(), unsigned: false },
            None => Null,
        };
        if *sign == "&&" || *sign == "||" {
            let mut unknown = false;
            for operand in operands {
                match operand.eval(row)?.truth() {
                    Some(holds) if holds == (*sign == "||") => return Ok(truth(Some(holds))),
                    Some(_) => {}
                    None => unknown = true,
                }
            }
            return Ok(truth(if unknown { None } else { Some(*sign == "&&") }));
        }
        let left = operands[0].eval(row)?;
        let left_null = matches!(left, Null);
        match *sign {
            "!" => return Ok(truth(left.truth().map(|holds| !holds))),
            "is" => return Ok(truth(Some(left_null))),
            "is_not" => return Ok(truth(Some(!left_null))),
            "+" | "-" | "*" | "/" | "div" | "%" if left_null => return Ok(Null),
            _ => {}
        }
        let right = operands[1].eval(row)?;
        if left_null || matches!(right, Null) {
            let both = left_null && matches!(right, Null);
            return Ok(if *sign == "<=>" { truth(Some(both)) } else { Null });
        }
        if BINARY[..6].contains(sign) {
            return compute(sign, &left, &right);
        }
        let order = order(&left, &right)?;
        Ok(truth(Some(match *sign {
            "<" => order == Ordering::Less,
            "<=" => order != Ordering::Greater,
            ">" => order == Ordering::Greater,
            ">=" => order != Ordering::Less,
            "!=" => order != Ordering::Equal,
            _ => order == Ordering::Equal,
        })))
    }
}

impl Naive {
    fn truth(&self) -> Option<bool> {
        match self {
            Null => None,
            Int { value, .. } => Some(*value != 0),
            Decimal { digits, .. } => Some(*digits != 0),
            other => Some(other.double() != 0.0),
        }
    }

    fn double(&self) -> f64 {
        match self {
            Null => unreachable!("asked before"),
            Int { value, .. } => value.to_string().parse().expect("a number"),
            Decimal { digits, scale } => format!("{digits}e-{scale}").parse().expect("a number"),
            Double(value) => *value,
            Text(text) => {
                // The longest start that is a number.
                let starts = (1..=text.len()).rev().filter_map(|end| text.get(..end));
                let number = |start: &str| start.parse::<f64>().ok().filter(|n| n.is_finite());
                let mut plain = starts.filter(|start| !start.to_lowercase().contains(['i', 'n']));
                plain.find_map(number).unwrap_or(0.0)
            }
        }
    }

    fn fraction(&self) -> Option<(i128, u32)> {
        match self {
            Int { value, .. } => Some((*value, 0)),
            Decimal { digits, scale } => Some((*digits, *scale)),
            _ => None,
        }
    }

    const fn is_unsigned(&self) -> bool {
        matches!(self, Int { unsigned: true, .. })
    }

    fn shown(&self) -> String {
        match self {
            Null => "NULL".to_owned(),
            Int { value, unsigned } => format!("{value}{}", if *unsigned { "u" } else { "" }),
            Decimal { digits, scale: 0 } => format!("{digits}m"),
            Decimal { digits, scale } => {
                let width = *scale as usize + 1;
                let text = format!("{:0width$}", digits.unsigned_abs());
                let (whole, fraction) = text.split_at(text.len() - *scale as usize);
                format!("{}{whole}.{fraction}m", if *digits < 0 { "-" } else { "" })
            }
            Double(value) => format!("{value:?}"),
            Text(text) => format!("'{text}'"),
        }
    }
}

/// Both as so many tenths, hundredths … as the finer one has.
fn level(mut left: (i128, u32), mut right: (i128, u32)) -> Result<(i128, i128, u32), Fail> {
    while left.1 != right.1 {
        let low = if left.1 < right.1 { &mut left } else { &mut right };
        *low = (low.0.checked_mul(10).ok_or(Fail::Digits)?, low.1 + 1);
    }
    Ok((left.0, right.0, left.1))
}

fn order(left: &Naive, right: &Naive) -> Result<Ordering, Fail> {
    if let (Text(left), Text(right)) = (left, right) {
        return Ok(left.as_bytes().cmp(right.as_bytes()));
    }
    if let (Some(left), Some(right)) = (left.fraction(), right.fraction()) {
        let (left, right, _) = level(left, right)?;
        return Ok(left.cmp(&right));
    }
    Ok(left.double().partial_cmp(&right.double()).expect("numbers"))
}

fn whole(value: i128, unsigned: bool) -> Result<Naive, Fail> {
    let fits = if unsigned { u64::try_from(value).is_ok() } else { i64::try_from(value).is_ok() };
    if fits { Ok(Int { value, unsigned }) } else { Err(Fail::Range) }
}

fn compute(sign: &str, left: &Naive, right: &Naive) -> Result<Naive, Fail> {
    let either = left.is_unsigned() || right.is_unsigned();
    if "/ div %".contains(sign) && right.truth() == Some(false) {
        return Ok(Null);
    }
    let (Some(a), Some(b)) = (left.fraction(), right.fraction()) else {
        let (a, b) = (left.double(), right.double());
        let value = match sign {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "/" => a / b,
            "%" => a % b,
            _ => return whole((a / b).trunc() as i128, either),
        };
        return if value.is_finite() { Ok(Double(value)) } else { Err(Fail::Range) };
    };
    let (x, y, scale) = level(a, b)?;
    let ints =
        a.1 == 0 && b.1 == 0 && !matches!((left, right), (Decimal { .. }, _) | (_, Decimal { .. }));
    let exact = |digits: Option<i128>, scale| {
        let digits = digits.ok_or(Fail::Digits)?;
        Ok(Decimal { digits, scale })
    };
    match sign {
        "div" => whole(x / y, either),
        "/" => {
            // One digit more than is kept, to see how to round.
            let mut digits = a.0;
            for _ in 0..b.1 + 5 {
                digits = digits.checked_mul(10).ok_or(Fail::Digits)?;
            }
            let (quotient, rest) = (digits / b.0, digits % b.0);
            let last = quotient % 10;
            let away = if (a.0 < 0) == (b.0 < 0) { 1 } else { -1 };
            let up = last.abs() >= 5 || (last.abs() == 5 && rest != 0);
            exact(Some(quotient / 10 + if up { away } else { 0 }), a.1 + 4)
        }
        "%" if ints => whole(x % y, left.is_unsigned()),
        "%" => exact(Some(x % y), scale),
        "+" if ints => whole(x + y, either),
        "-" if ints => whole(x - y, either),
        "*" if ints => whole(x.checked_mul(y).ok_or(Fail::Range)?, either),
        "+" => exact(x.checked_add(y), scale),
        "-" => exact(x.checked_sub(y), scale),
        _ => exact(a.0.checked_mul(b.0), a.1 + b.1),
    }
}

fn text_value() -> impl Strategy<Value = String> {
    prop_oneof!["[0-9]{0,2}", "-?[0-9]\\.[0-9]x?", "[a-c]{0,2}", " ?[1-3]e[0-2]?"]
        .prop_map(|text| text.trim_start().to_owned())
}

fn row() -> impl Strategy<Value = Vec<Naive>> {
    let signed = prop_oneof![-3_i128..4, -1000_i128..1000];
    let maybe = |value: BoxedStrategy<Naive>| prop_oneof![1 => Just(Null), 4 => value].boxed();
    vec![
        maybe(signed.prop_map(|value| Int { value, unsigned: false }).boxed()),
        maybe((0_i128..9).prop_map(|value| Int { value, unsigned: true }).boxed()),
        maybe((-8_i32..9).prop_map(|value| Double(f64::from(value) / 4.0)).boxed()),
        maybe((-250_i128..250).prop_map(|digits| Decimal { digits, scale: 2 }).boxed()),
        maybe(text_value().prop_map(Text).boxed()),
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        4 => (0_u32..5).prop_map(Tree::Column),
        1 => Just(Tree::Literal(Null)),
        1 => (-3_i128..4).prop_map(|value| Tree::Literal(Int { value, unsigned: false })),
        1 => (0_i128..4).prop_map(|value| Tree::Literal(Int { value, unsigned: true })),
        1 => (-3_i32..4).prop_map(|value| Tree::Literal(Double(f64::from(value) / 2.0))),
        1 => text_value().prop_map(|text| Tree::Literal(Text(text))),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        let operands = |count| proptest::collection::vec(inner.clone(), count);
        prop_oneof![
            4 => (proptest::sample::select(&BINARY[..6]), operands(2..=2))
                .prop_map(|(sign, operands)| Tree::Operator(sign, operands)),
            3 => (proptest::sample::select(&BINARY[6..]), operands(2..=2))
                .prop_map(|(sign, operands)| Tree::Operator(sign, operands)),
            1 => (prop_oneof![Just("&&"), Just("||")], operands(2..=4))
                .prop_map(|(sign, operands)| Tree::Operator(sign, operands)),
            1 => operands(1..=1).prop_map(|operands| Tree::Operator("!", operands)),
            1 => (prop_oneof![Just("is"), Just("is_not")], operands(1..=1)).prop_map(
                |(sign, mut operands)| {
                    operands.push(Tree::Literal(Null));
                    Tree::Operator(sign, operands)
                }
            ),
        ]
    })
}

fn fill(db: &Arc<Pool>, data: &[Vec<Naive>]) {
    for (id, row) in data.iter().enumerate() {
        let cells = row.iter().map(|cell| match cell {
            Null => "null".to_owned(),
            Text(text) => format!("'{text}'"),
            other => other.shown().trim_end_matches(['m', 'u']).to_owned(),
        });
        let cells = cells.collect::<Vec<_>>().join(", ");
        connection(db)
            .execute(&format!("insert into t values ({cells}, {id})"), [])
            .expect("a row");
    }
}

const TABLE: &str =
    "create table t (i bigint, u bigint unsigned, d double, m decimal(10,2), s varchar(9), id int)";

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn expressions_come_to_what_the_naive_evaluator_says(
        data in proptest::collection::vec(row(), 1..5),
        trees in proptest::collection::vec(tree(), 8),
    ) {
        let db = database(TABLE);
        fill(&db, &data);
        for tree in trees {
            check(&db, &data, &tree)?;
        }
    }
}

fn check(db: &Arc<Pool>, data: &[Vec<Naive>], tree: &Tree) -> Result<(), TestCaseError> {
    let expected: Result<Vec<Naive>, Fail> = data.iter().map(|row| tree.eval(row)).collect();
    let project = run(db, scan("t").project([(text("r"), tree.expr())]), Vec::new());
    let filter = run(db, scan("t").filter(tree.expr()).table_project([text("id")]), Vec::new());
    match expected {
        Ok(values) => {
            let cells: Vec<_> = project.expect("values").rows.concat();
            let shown: Vec<_> = values.iter().map(Naive::shown).collect();
            prop_assert_eq!(cells, shown, "{:?}", tree);
            let kept = values.iter().enumerate().filter(|(_, v)| v.truth() == Some(true));
            let kept: Vec<_> = kept.map(|(id, _)| id.to_string()).collect();
            prop_assert_eq!(filter.expect("rows").rows.concat(), kept);
        }
        Err(Fail::Range) => prop_assert!(project.is_err() && filter.is_err()),
        Err(Fail::Digits) => {}
    }
    Ok(())
}
