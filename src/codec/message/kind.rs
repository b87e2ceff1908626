//! Numbers in the kind byte, one list per direction.

macro_rules! kinds {
    (
        $(#[$doc:meta])* $name:ident;
        $(
            $(#[$kind_doc:meta])*
            $kind:ident = $number:literal $(| $second:literal)* $protocol:literal;
        )*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum $name {
            $($(#[$kind_doc])* $kind = $number,)*
        }

        impl $name {
            /// The kind with this number, if it is known.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number $(| $second)* => Some(Self::$kind),)*
                    _ => None,
                }
            }

            /// Number of the kind.
            #[must_use]
            pub const fn number(self) -> u8 {
                self as u8
            }

            /// Name of the kind in the protocol.
            #[must_use]
            pub const fn protocol_name(self) -> &'static str {
                match self {
                    $(Self::$kind => $protocol,)*
                }
            }
        }
    };
}

kinds! {
    /// Kind of a message that a client sends.
    ///
    /// The engine of today answers to [`CapabilitiesGet`](Self::CapabilitiesGet), the login, the
    /// sessions, the plans, `EXEC_SQL`, the flow control, the timestamps, the savepoints and the
    /// files. On any other kind it closes the connection.
    ClientKind;
    /// Asks for the capabilities; also serves as the liveness probe.
    CapabilitiesGet = 1 "CON_CAPABILITIES_GET";
    /// Asks for other capabilities.
    CapabilitiesSet = 2 "CON_CAPABILITIES_SET";
    /// Ends the connection.
    Close = 3 "CON_CLOSE";
    /// First step of logging in.
    AuthenticateStart = 4 "SESS_AUTHENTICATE_START";
    /// Later steps of logging in.
    AuthenticateContinue = 5 "SESS_AUTHENTICATE_CONTINUE";
    /// Resets a session to its initial state.
    SessionReset = 6 "SESS_RESET";
    /// Closes a session.
    SessionClose = 7 "SESS_CLOSE";
    /// Runs a statement, the older number of [`Self::ExecSql`].
    StmtExecute = 12 "SQL_STMT_EXECUTE";
    /// Request of the document store; carried as bytes.
    CrudFind = 17 "CRUD_FIND";
    /// Request of the document store; carried as bytes.
    CrudInsert = 18 "CRUD_INSERT";
    /// Request of the document store; carried as bytes.
    CrudUpdate = 19 "CRUD_UPDATE";
    /// Request of the document store; carried as bytes.
    CrudDelete = 20 "CRUD_DELETE";
    /// Opens a block of requests with conditions, see [`expect`](crate::codec::message).
    ExpectOpen = 24 "EXPECT_OPEN";
    /// Closes such a block.
    ExpectClose = 25 "EXPECT_CLOSE";
    /// Runs an execution plan.
    ExecPlan = 100 "EXEC_PLAN_READ";
    /// Runs a statement.
    ExecSql = 101 "EXEC_SQL";
    /// Runs a prepared statement.
    PrepareExecute = 102 "GALAXY_PREPARE_EXECUTE";
    /// Opens a session.
    SessionNew = 110 "SESS_NEW";
    /// Interrupts a session.
    SessionKill = 111 "SESS_KILL";
    /// Grants more result to a session.
    TokenOffer = 112 "TOKEN_OFFER";
    /// Asks for timestamps.
    GetTso = 113 "GET_TSO";
    /// Sets, releases or goes back to a savepoint.
    AutoSavepoint = 115 "AUTO_SP";
    /// Asks about files.
    GetFileInfo = 116 "FILE_OPERATION_GET_FILE_INFO";
    /// Reads or writes part of a file.
    TransferFileData = 117 "FILE_OPERATION_TRANSFER_FILE_DATA";
    /// Manages files.
    ManageFile = 118 "FILE_OPERATION_FILE_MANAGE";
}

kinds! {
    /// Kind of a message that a server sends.
    ///
    /// Another line of servers gives second numbers to three kinds: 100 [`Self::TokenDone`],
    /// 101 [`Self::Tso`], 102 [`Self::Chunk`]. [`from_number`](Self::from_number) accepts them.
    ServerKind;
    /// Success without a result.
    Ok = 0 "OK";
    /// Error.
    Error = 1 "ERROR";
    /// The capabilities.
    Capabilities = 2 "CONN_CAPABILITIES";
    /// A challenge.
    AuthenticateContinue = 3 "SESS_AUTHENTICATE_CONTINUE";
    /// The login succeeded.
    AuthenticateOk = 4 "SESS_AUTHENTICATE_OK";
    /// Notice beside the results.
    Notice = 11 "NOTICE";
    /// One column of a result.
    ColumnMetaData = 12 "RESULTSET_COLUMN_META_DATA";
    /// One row.
    Row = 13 "RESULTSET_ROW";
    /// End of the rows.
    FetchDone = 14 "RESULTSET_FETCH_DONE";
    /// End of this batch of rows; a request fetches more. Never sent.
    FetchSuspended = 15 "RESULTSET_FETCH_SUSPENDED";
    /// End of the rows; another result follows.
    FetchDoneMoreResultsets = 16 "RESULTSET_FETCH_DONE_MORE_RESULTSETS";
    /// End of the statement.
    StmtExecuteOk = 17 "SQL_STMT_EXECUTE_OK";
    /// End of the rows; output parameters follow. Never sent.
    FetchDoneMoreOutParams = 18 "RESULTSET_FETCH_DONE_MORE_OUT_PARAMS";
    /// The budget of the result is used up.
    TokenDone = 19 | 100 "RESULTSET_TOKEN_DONE";
    /// Timestamps.
    Tso = 20 | 101 "RESULTSET_TSO";
    /// Rows in columnar form.
    Chunk = 21 | 102 "RESULTSET_CHUNK";
    /// Properties of files.
    FileInfo = 22 "RESULTSET_GET_FILE_INFO_OK";
    /// Part of a file, or the outcome of writing it.
    FileData = 23 "RESULTSET_TRANSFER_FILE_DATA_OK";
    /// Outcome of managing files.
    FileManaged = 24 "RESULTSET_FILE_MANAGE_OK";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_their_kinds() {
        for number in 0..=u8::MAX {
            if let Some(kind) = ClientKind::from_number(number) {
                assert_eq!(kind.number(), number);
            }
            if let Some(kind) = ServerKind::from_number(number) {
                let is_second = (100..=102).contains(&number);
                let first = if is_second { number.saturating_sub(81) } else { number };
                assert_eq!(kind.number(), first);
            }
        }
        assert_eq!(ClientKind::from_number(127), None);
    }
}
