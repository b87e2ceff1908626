//! `serve`: a proxy until SIGTERM or SIGINT.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use epoll_group::{Runtime, session};

use lab::signals::EndSignals;
use proxy::config::File;
use proxy::nodes::Nodes;
use proxy::proxy::Proxy;

/// Longest time for requests in progress to finish after the signal.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT, then drains.
pub fn run(path: &Path, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let file = File::read(path)?;
    let signals = EndSignals::catch()?;
    let runtime = Runtime::builder().name("proxy").config(file.runtime()?).start()?;
    let nodes = Nodes::new(&runtime.handle(), &file.nodes(), file.patience())?;
    let users = file.users.iter().map(|(name, password)| (name.clone(), password.clone()));
    let proxy = Proxy::new(users, nodes.clone(), file.catalogue()?);
    let listener = runtime.listen(file.listen.as_str(), session::Server::new(proxy))?;
    writeln!(out, "listening on {}", listener.local_addr())?;
    out.flush()?;
    let signal = signals.wait()?;
    writeln!(out, "{signal}: draining")?;
    out.flush()?;
    let report = runtime.drain(DRAIN);
    for status in nodes.status() {
        writeln!(out, "{status}")?;
    }
    writeln!(out, "{report}")?;
    Ok(())
}

/// Reads a file and says what is wrong with it.
pub fn check(path: &Path, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let file = File::read(path)?;
    writeln!(out, "{}: {} nodes, fine", path.display(), file.nodes().len())?;
    Ok(())
}
