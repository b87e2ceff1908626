//! Every plan that was recorded of the existing client runs, or is refused for a reason.

use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::ClientMessage;
use serde_json::Value as Json;

use super::*;

const TABLES: &str = "
    create table t_0001 (id bigint primary key, name varchar(20), a int, b varchar(20));
    create index k_a on t_0001 (a);
    create index k_ab on t_0001 (a, b);
    insert into t_0001 values (7, 'n', 7, 'x'), (8, 'm', null, null), (50, 'o', 7, 'y');
";

/// Answers to the recorded plans by their names; all others answer the row of id 7.
const ANSWERS: &[(&str, &str)] = &[
    ("plan_get_two_column_key", "7,'n',7,'x'"),
    ("plan_get_key_null", "8,'m',NULL,NULL"),
    ("plan_get_key_by_column_id", "! value of type 2 is no name"),
    ("plan_get_no_keys", "! GET without a key"),
    ("plan_table_project_by_position", "! value of type 1 is no name"),
    ("plan_table_scan", "7,'n',7,'x' 8,'m',NULL,NULL 50,'o',7,'y'"),
    ("plan_table_project_scan", "7 8 50"),
    // The client asked for the reverse order.
    ("plan_range_scan_closed", "50,'o',7,'y' 8,'m',NULL,NULL 7,'n',7,'x'"),
    ("plan_range_scan_open", "7,'n',7,'x' 8,'m',NULL,NULL 50,'o',7,'y'"),
    ("plan_filter_op_==", ""),
    ("plan_filter_op_<=", ""),
    ("plan_filter_op_like", "! operator 'like' of 2 operands"),
    ("plan_filter_op_not_like", "! operator 'not_like' of 2 operands"),
    ("plan_filter_op_minus_prefix", "! operator '-' of 1 operands"),
    ("plan_filter_op_is_null", ""),
    ("plan_filter_op_in", "! operator 'in' of 4 operands"),
    ("plan_filter_op_not_in", "! operator 'not_in' of 3 operands"),
    ("plan_filter_over_table_project", "7,'n'"),
    ("plan_project_filter_table_project_get", "14,'n'"),
    ("plan_aggr_count_func", "1"),
    ("plan_aggr_sum_func", "7m"),
    ("plan_aggr_avg_distinct_func", "7.0000m"),
    ("plan_aggr_min_func", "7"),
    ("plan_aggr_max_func", "7"),
    ("plan_parameter_uint", ""),
    ("plan_parameter_double", ""),
    ("plan_parameter_bool", ""),
    ("plan_parameter_null", ""),
    ("plan_parameter_string", ""),
    ("plan_filter_depth_20", ""),
    ("plan_parameter_octets", "! GET: V_OCTETS in a key"),
];

#[test]
fn recorded_plans_run_or_are_refused() {
    let db = database(TABLES);
    let mut names = Vec::new();
    for vector in include_str!("../../../../../../tests/golden/exec_plan.jsonl").lines() {
        let vector: Json = serde_json::from_str(vector).expect("a line of JSON");
        let name = vector["name"].as_str().expect("a name").to_owned();
        let body = bytes(vector["body_hex"].as_str().expect("a body"));
        let message = ClientMessage::decode(100, &body, &Limits::default());
        let Ok(ClientMessage::ExecPlan(message)) = message else { panic!("{name}: {message:?}") };
        let Some(plan) = &message.plan else { continue };
        let answer = match run_message(&db, &message, plan) {
            Ok(rows) => rows.rows.iter().map(|row| row.join(",")).collect::<Vec<_>>().join(" "),
            Err(error) => {
                let text = String::from_utf8_lossy(&error.message).into_owned();
                text.replace("Executor error:", "!")
            }
        };
        let expected = ANSWERS.iter().find(|(of, _)| *of == name);
        let expected = expected.map_or("7,'n',7,'x'", |(_, answer)| answer);
        assert_eq!(answer, expected, "{name}");
        names.push(name);
    }
    assert!(names.len() > 40);
    assert!(ANSWERS.iter().all(|(name, _)| names.iter().any(|n| n == name)), "all are there");
}

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(byte).collect()
}
