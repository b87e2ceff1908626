//! Without statements: a script that shows the shell's abilities, and checks them.

use std::error::Error;
use std::io::Write;

use crate::shell::{Outcome, Shell};
use crate::splitter::Splitter;

/// Outcome that a statement must have.
enum Expected {
    Rows(u64),
    Changed(u64),
    /// The error has this number.
    Error(u32),
    Command,
}

use Expected::{Changed, Command, Error as Fails, Rows};

const SCRIPT: &[(&str, Expected)] = &[
    ("\\status", Command),
    ("show tables;", Rows(1)),
    ("select count(*), min(id), max(id) from sbtest1;", Rows(1)),
    ("\\cut 24", Command),
    ("select id, k, c from sbtest1 where id <= 3 order by id;", Rows(3)),
    ("\\cut off", Command),
    (
        "create table fruit (\n  id bigint primary key auto_increment,\n  name varchar(20),\n  \
         price decimal(8, 2),\n  since date\n);",
        Changed(0),
    ),
    (
        "insert into fruit (name, price, since) values\n  ('apple', 0.45, '2024-02-29'),\n  \
         ('梨', null, null),\n  ('it''s; a plum', 1200, '1999-12-31');",
        Changed(3),
    ),
    ("select * from fruit; -- NULL, and numbers at the right", Rows(3)),
    ("\\chunks on", Command),
    ("select name, price from fruit where price is not null;", Rows(2)),
    ("\\chunks off", Command),
    ("select * from fruit where id = 2\\G", Rows(1)),
    ("update fruit set price = price * 2 where price < 1;", Changed(1)),
    ("select * from vegetables;", Fails(1146)),
    ("begin; delete from fruit; rollback;", Changed(0)),
    ("select count(*) from fruit;", Rows(1)),
    ("drop table fruit;", Changed(0)),
    ("\\status", Command),
];

/// Runs the script.
///
/// # Errors
/// A statement had another outcome than the expected one.
pub(crate) fn run(shell: &mut Shell<impl Write>) -> Result<(), Box<dyn Error>> {
    for (text, expected) in SCRIPT {
        shell.say(&format!("xsql> {}", text.replace('\n', "\n   -> ")))?;
        let mut splitter = Splitter::default();
        let mut outcome = Outcome::Command;
        for input in text.lines().flat_map(|line| splitter.push(line)) {
            outcome = shell.run(&input)?;
        }
        if let Outcome::Failed(error) = &outcome {
            shell.say(error)?;
        }
        shell.say("")?;
        if !expected.is(&outcome) {
            return Err(format!("{outcome:?} came of {text}").into());
        }
    }
    let done = SCRIPT.len();
    shell.say(&format!("{done} inputs, each with the outcome that it should have"))?;
    Ok(())
}

impl Expected {
    fn is(&self, outcome: &Outcome) -> bool {
        match (self, outcome) {
            (Rows(expected), Outcome::Rows(rows)) | (Changed(expected), Outcome::Changed(rows)) => {
                expected == rows
            }
            (Fails(number), Outcome::Failed(error)) => error.contains(&format!("error {number} ")),
            (Command, Outcome::Command) => true,
            _ => false,
        }
    }
}
