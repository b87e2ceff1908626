//! Answers that the proxy gives without a data node.
#![forbid(unsafe_code)]

use epoll_group::codec::proto::notice::Level;
use epoll_group::codec::row::Column;
use epoll_group::session::{Reply, SessionError};

use crate::front::Front;
use crate::route::{Told, What};

/// The collation of utf8mb4 texts.
const COLLATION: u64 = 45;

/// Answers questions about the session.
pub fn tell(front: &Front, told: &[Told], reply: &mut Reply<'_>) -> Result<(), SessionError> {
    let columns = told.iter().map(|told| match told.what {
        What::Database | What::User => Column::text(&told.label, COLLATION, 4 * 64),
        What::LastInsertId => Column::unsigned(&told.label),
        _ => Column::signed(&told.label),
    });
    reply.columns(&columns.collect::<Vec<_>>())?;
    let state = front.state();
    let (insert_id, affected) = (state.told.insert_id, state.told.affected);
    let autocommit = !state.manual_commit;
    drop(state);
    reply.row(|row| {
        for told in told {
            match told.what {
                What::ConnectionId => row.int(front.number.into()),
                What::LastInsertId => row.uint(insert_id),
                What::RowCount => row.int(affected),
                What::Autocommit => row.int(autocommit.into()),
                What::Database => row.text(&front.schema),
                What::User => row.text(format!("{}@%", front.user)),
            }
        }
    })
}

/// `show warnings`: those of the last statement, from a level on.
pub fn warnings(front: &Front, least: Level, reply: &mut Reply<'_>) -> Result<(), SessionError> {
    reply.columns(&[
        Column::text("Level", COLLATION, 4 * 7),
        Column::unsigned("Code"),
        Column::text("Message", COLLATION, 4 * 512),
    ])?;
    let warnings = front.state().told.warnings.clone();
    for warning in warnings.into_iter().filter(|warning| warning.level() as u8 >= least as u8) {
        let level = match warning.level() {
            Level::Note => "Note",
            Level::Warning => "Warning",
            Level::Error => "Error",
        };
        reply.row(|row| {
            row.text(level);
            row.uint(warning.code.into());
            row.text(&warning.msg);
        })?;
    }
    Ok(())
}
