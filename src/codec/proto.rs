//! Types that prost generated from the `.proto` files in `src/codec/proto`.
//!
//! They follow the files and prost 0.14: their fields, getters and traits are prost's. Their other
//! methods are written by hand in [`message`](crate::codec::message).
//!
//! The files say `string` where the protocol does, but the types hold `Vec<u8>` there. Text is in
//! the character set of the database, and neither existing peer checks it.

macro_rules! generated {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[allow(
                missing_docs,
                clippy::all,
                clippy::exhaustive_enums,
                clippy::exhaustive_structs,
                reason = "generated"
            )]
            #[rustfmt::skip]
            pub mod $name;
        )*
    };
}

generated! {
    /// Messages about the connection and no session.
    connection;
    /// Expectations: conditions for the requests of a block. The older server line only.
    expect;
    /// Transfer of tablespace files.
    file;
    /// Answers that any request can get.
    generic;
    /// Notices: messages of a server beside the results.
    notice;
    /// Execution plans: reads without a statement to parse.
    plan;
    /// Results: metadata, rows, chunks, ends.
    resultset;
    /// Login; start and end of sessions.
    session;
    /// Statements in text form and the flow control of their results.
    sql;
    /// Timestamps and savepoints of distributed transactions.
    tso;
    /// Values with their type: statement arguments, plan literals, capabilities.
    value;
}

#[rustfmt::skip]
#[allow(dead_code, reason = "generated for every message")]
pub(super) mod schema;
