//! `serve`: a server until it is told to end.

use std::env;
use std::error::Error;
use std::io::Write;
use std::time::Duration;

use epoll_group::{Runtime, session};

use crate::args::Serve;
use tempfile::TempDir;

use crate::node::{Engine, Options};
use crate::server_settings::Settings;
use crate::signals::EndSignals;

/// How long requests in progress may take to finish once the server is told to end.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT, then drains.
pub(crate) fn run(args: &Serve, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let settings = Settings::gather(args.config.as_deref(), env::vars_os(), &args.settings)?;
    // Before the runtime starts its threads: they inherit the mask.
    let signals = EndSignals::catch()?;
    let folder = args.database.is_none().then(TempDir::new).transpose()?;
    let path = match (&args.database, &folder) {
        (Some(path), _) => path.clone(),
        (None, Some(folder)) => folder.path().join("select1.db"),
        (None, None) => unreachable!("there is a folder if there is no path"),
    };
    let runtime = Runtime::builder().name("select1").config(settings.config).start()?;
    let options = Options {
        user: args.user.clone(),
        password: args.password.clone(),
        path,
        schema: args.schema.clone(),
    };
    let engine = Engine::open(&options, runtime.handle())?;
    engine.make_sbtest(args.rows)?;
    let listener = runtime.listen(args.listen.as_str(), session::Server::new(engine))?;
    writeln!(out, "listening on {}", listener.local_addr())?;
    out.flush()?;
    let signal = signals.wait()?;
    writeln!(out, "{signal}: draining")?;
    out.flush()?;
    let report = runtime.drain(DRAIN);
    writeln!(out, "{report}")?;
    Ok(())
}
