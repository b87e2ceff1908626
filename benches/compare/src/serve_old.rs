//! The server of the old shape, until standard input ends.

use std::error::Error;
use std::io::Write;

use super::args::ServeOld;
use super::engine::{Constant, Sqlite, Temporary};
use super::load::raise_descriptor_limit;
use super::serve::announce_until_told;
use super::server::EngineName;
use super::thread_per_session::{self, Account};

pub(crate) fn run(args: &ServeOld, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    let account = Account::new(&args.user, &args.password);
    match args.engine {
        EngineName::Constant => {
            let address = thread_per_session::start(args.listen, account, Constant)?;
            announce_until_told(&address.to_string(), out)
        }
        EngineName::Sqlite => {
            let temporary = Temporary::new();
            let database = args.database.as_deref().unwrap_or_else(|| temporary.path());
            let engine = Sqlite::open(database, args.rows)?;
            let address = thread_per_session::start(args.listen, account, engine)?;
            announce_until_told(&address.to_string(), out)
        }
    }
}
