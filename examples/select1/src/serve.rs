//! `serve`: a server until SIGTERM or SIGINT.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use epoll_group::{Runtime, session};
use lab::args::Account;
use lab::signals::EndSignals;
use select1::node::{Engine, Options};
use tempfile::TempDir;

use crate::args::Serve;

/// Time for requests in progress to finish after the signal to end.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT, then drains.
pub(crate) fn run(args: &Serve, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let config = args.tunables.gather()?;
    let signals = EndSignals::catch()?;
    let folder = TempDir::new()?;
    let path = args.database.clone().unwrap_or_else(|| folder.path().join("select1.db"));
    let runtime = Runtime::builder().name("select1").config(config).start()?;
    let Account { user, password } = &args.account;
    let mut options = Options::of_one(user, password, &args.schema, path);
    options.accounts.extend(args.add_account.iter().cloned());
    options.schemas.extend(args.add_schema.iter().cloned());
    let engine = Engine::open(&options, runtime.handle())?;
    engine.make_sbtest(args.rows)?;
    let listener = runtime.listen(args.listen.as_str(), session::Server::new(engine))?;
    writeln!(out, "listening on {}", listener.local_addr())?;
    out.flush()?;
    let signal = signals.wait()?;
    writeln!(out, "{signal}: draining")?;
    out.flush()?;
    writeln!(out, "{}", runtime.drain(DRAIN))?;
    Ok(())
}
