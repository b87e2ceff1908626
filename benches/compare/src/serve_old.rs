//! The servers that give threads to sessions or clients, until standard input ends.

use std::error::Error;
use std::io::Write;

use super::args::ServeOld;
use super::engine::{Constant, Sqlite, Temporary};
use super::load::raise_descriptor_limit;
use super::serve::announce_until_told;
use super::server::{EngineName, ThreadsFor};
use super::statements::{Account, Engine};
use super::{thread_per_client, thread_per_session};

pub(crate) fn run(args: &ServeOld, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    let account = Account::new(&args.user, &args.password);
    match args.engine {
        EngineName::Constant => serve(args, account, Constant, out),
        EngineName::Sqlite => {
            let temporary = Temporary::new();
            let database = args.database.as_deref().unwrap_or_else(|| temporary.path());
            let engine = Sqlite::open(database, args.rows)?;
            serve(args, account, engine, out)
        }
    }
}

fn serve(
    args: &ServeOld,
    account: Account,
    engine: impl Engine,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let address = match args.threads_for {
        ThreadsFor::Sessions => thread_per_session::start(args.listen, account, engine)?,
        ThreadsFor::Clients => thread_per_client::start(args.listen, account, engine)?,
    };
    announce_until_told(&address.to_string(), out)
}
