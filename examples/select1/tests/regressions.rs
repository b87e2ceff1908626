//! One test for each bug that was found by trying.

use super::{Server, change, failure, rows};

#[test]
fn a_zero_does_not_end_a_statement() {
    let server = Server::start();
    let mut client = server.client();
    // SQLite would stop to read there, and change all rows.
    let error = failure(&mut client, "update sbtest1 set k = -1\0 where id = 3");
    assert_eq!(error.code, 1064);
    assert_eq!(rows(&mut client, "select count(*) from sbtest1 where k = -1"), "0;");
    let sql = "select 'a\0b', hex('\\0\0') /* \0 */ -- \0\n, 2 # \0";
    assert_eq!(rows(&mut client, sql), "a\0b|0000|2;");
    assert_eq!(failure(&mut client, "create table t (a int default 1\0)").code, 1064);
    change(&mut client, "create table t (a varchar(9) default 'a\0b', b int)");
    change(&mut client, "insert into t (b) values (1)");
    assert_eq!(rows(&mut client, "select a from t"), "a\0b;");
}
