//! Servers that echo bytes over TLS, and their load. Both servers have the same `rustls`, cryptography,
//! certificate and way to resume sessions.

use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use baselines::epoll::{self, Address};
use clap::ValueEnum;
use epoll_group::net::{
    Close, CloseReason, ConnectOptions, Connection, Input, ListenOptions, Protocol, TlsClient,
    TlsInfo,
};
use epoll_group::{Handle, Runtime};
use lab::cpu;
use lab::helper::announce;
use lab::load::Report;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio_rustls::TlsAcceptor;

use crate::workload::Load;

/// Servers of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TlsServer {
    /// The library, with its layer.
    EpollGroup,
    /// tokio-rustls, one task a connection.
    TokioRustls,
}

const NAME: &str = "db.example";
const CERTIFICATE: &str = "certificate.der";
const KEY: &str = "key.der";
/// Time in which the load hears nothing, after which it fails.
const PATIENCE: Duration = Duration::from_secs(10);
/// Buffer of a connection of tokio, as large as a record.
const RECORD_BYTES: usize = 16 << 10;
const QUESTION: [u8; 64] = [b'?'; 64];

/// Writes a certificate and its key.
///
/// # Errors
/// They cannot be made or written.
pub fn write_identity(folder: &Path) -> Result<(), Box<dyn Error>> {
    let identity = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    fs::write(folder.join(CERTIFICATE), identity.cert.der())?;
    Ok(fs::write(folder.join(KEY), identity.signing_key.serialize_der())?)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn server_config(folder: &Path) -> Result<Arc<ServerConfig>, Box<dyn Error>> {
    let certificate = CertificateDer::from(fs::read(folder.join(CERTIFICATE))?);
    let key = PrivateKeyDer::try_from(fs::read(folder.join(KEY))?)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    config.ticketer = ring::Ticketer::new()?;
    Ok(Arc::new(config))
}

fn client_config(folder: &Path, resumes: bool) -> Result<Arc<ClientConfig>, Box<dyn Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(fs::read(folder.join(CERTIFICATE))?))?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    if !resumes {
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}

impl TlsServer {
    /// Serves until the input ends.
    ///
    /// # Errors
    /// It cannot listen, or has no certificate.
    pub fn serve(self, folder: &Path) -> Result<(), Box<dyn Error>> {
        let (any, config) = (SocketAddr::from(([127, 0, 0, 1], 0)), server_config(folder)?);
        match self {
            Self::EpollGroup => {
                let runtime = Runtime::builder().name("tls").start()?;
                let tls = epoll_group::net::TlsServer::new(config);
                let options = ListenOptions::new().layer(tls);
                let listener = runtime.listen_with(any, options, Echo)?;
                announce(&listener.local_addr().to_string())?;
                let _ = runtime.drain(Duration::from_secs(5));
                Ok(())
            }
            Self::TokioRustls => {
                let listener = epoll::listen(any, Address::Alone)?;
                let address = listener.local_addr()?;
                listener.set_nonblocking(true)?;
                let threads = thread::available_parallelism()?.get();
                let runtime =
                    Builder::new_multi_thread().worker_threads(threads).enable_io().build()?;
                runtime.spawn(accept(listener, TlsAcceptor::from(config)));
                Ok(announce(&address.to_string())?)
            }
        }
    }
}

/// Sends back what arrives.
struct Echo;

impl Protocol for Echo {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        conn.send(input.take_all());
        Ok(())
    }
}

async fn accept(listener: std::net::TcpListener, acceptor: TlsAcceptor) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        // A peer that leaves before it is accepted is no reason to stop.
        if let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(echo(socket, acceptor.clone()));
        }
    }
}

async fn echo(socket: TcpStream, acceptor: TlsAcceptor) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut tls = acceptor.accept(socket).await?;
    let mut buffer = vec![0; RECORD_BYTES];
    loop {
        let count = tls.read(&mut buffer).await?;
        if count == 0 {
            return tls.shutdown().await;
        }
        tls.write_all(&buffer[..count]).await?;
        tls.flush().await?;
    }
}

/// Clients of a window, and its results.
struct Window {
    tally: Mutex<Tally>,
    /// Told when a client opens, when the last one is quiet, and of an error.
    changed: Condvar,
}

struct Tally {
    /// Clients that have opened.
    open: usize,
    /// Clients that are not quiet.
    asking: usize,
    /// End of the window.
    until: Instant,
    report: Report,
    answers_total: u64,
    error: Option<String>,
}

impl Window {
    fn new() -> Arc<Self> {
        let report = Report::new();
        let (until, error) = (Instant::now(), None);
        let tally = Tally { open: 0, asking: 0, until, report, answers_total: 0, error };
        Arc::new(Self { tally: Mutex::new(tally), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an answer. Returns true if its client is to go on.
    fn answered(&self, since: Instant) -> bool {
        let mut tally = self.lock();
        let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        tally.report.hist.saturating_record(nanos);
        tally.report.requests += 1;
        if Instant::now() < tally.until {
            return true;
        }
        tally.asking -= 1;
        if tally.asking == 0 {
            self.changed.notify_all();
        }
        false
    }

    fn fail(&self, error: impl ToString) {
        self.lock().error.get_or_insert_with(|| error.to_string());
        self.changed.notify_all();
    }

    /// Waits until `is_done`.
    ///
    /// # Errors
    /// A client has failed, or the server is silent.
    fn wait(&self, is_done: impl Fn(&Tally) -> bool) -> Result<MutexGuard<'_, Tally>, String> {
        let going_on = |tally: &mut Tally| tally.error.is_none() && !is_done(tally);
        let patience = self.lock().until.saturating_duration_since(Instant::now()) + PATIENCE;
        let waited = self.changed.wait_timeout_while(self.lock(), patience, going_on);
        let (mut tally, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match tally.error.take() {
            Some(error) => Err(error),
            None if is_done(&tally) => Ok(tally),
            None => Err(format!("the server is silent for {PATIENCE:?}")),
        }
    }

    /// Lets clients ask for this long. `start` starts them.
    fn run_for(
        &self,
        time: Duration,
        clients: usize,
        start: impl FnOnce(),
    ) -> Result<Report, Box<dyn Error>> {
        let (cpu_before, began) = (cpu::of_process(), Instant::now());
        {
            let mut tally = self.lock();
            tally.until = began + time;
            tally.asking = clients;
            tally.report = Report::new();
        }
        start();
        let mut tally = self.wait(|tally| tally.asking == 0)?;
        let mut report = tally.report.clone();
        report.asked = report.requests;
        report.seconds = began.elapsed().as_secs_f64();
        report.client_cpu = cpu::of_process().saturating_sub(cpu_before);
        tally.answers_total += report.requests;
        Ok(report)
    }
}

/// Checks an answer in pieces. Returns true if it is complete.
fn take_answer(input: &mut Input<'_>) -> Result<bool, Close> {
    if input.len() < QUESTION.len() {
        input.need(QUESTION.len());
        return Ok(false);
    }
    if input.take_all() != QUESTION {
        return Err("a wrong answer".into());
    }
    Ok(true)
}

/// Connections with one question in flight each.
pub struct Questions {
    window: Arc<Window>,
    connections: Vec<Connection>,
    _runtime: Runtime,
}

impl Questions {
    /// Opens the connections.
    ///
    /// # Errors
    /// One cannot be opened.
    pub fn connect(
        to: SocketAddr,
        folder: &Path,
        connections: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let (runtime, window) = (Runtime::builder().name("asks").start()?, Window::new());
        let tls = TlsClient::new(client_config(folder, false)?, ServerName::try_from(NAME)?);
        let connect = |_| {
            let options = ConnectOptions::new().layer(tls.clone());
            runtime.handle().connect_with(to, options, Asks(Arc::clone(&window)))
        };
        let connections = (0..connections).map(connect).collect::<Result<Vec<_>, _>>()?;
        drop(window.wait(|tally| tally.open == connections.len())?);
        Ok(Self { window, connections, _runtime: runtime })
    }
}

impl Load for Questions {
    fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>> {
        let ask = || self.connections.iter().for_each(Connection::notify);
        self.window.run_for(time, self.connections.len(), ask)
    }

    fn answers_total(&self) -> u64 {
        self.window.lock().answers_total
    }
}

/// Client of one connection. The state is the time of the question.
struct Asks(Arc<Window>);

impl Protocol for Asks {
    type State = Instant;

    fn opened(&self, _: &Connection) -> Result<Instant, Close> {
        self.0.lock().open += 1;
        self.0.changed.notify_all();
        Ok(Instant::now())
    }

    fn notified(
        &self,
        conn: &Connection,
        since: &mut Instant,
        _: &mut Input<'_>,
    ) -> Result<(), Close> {
        *since = Instant::now();
        conn.send(QUESTION);
        Ok(())
    }

    fn received(
        &self,
        conn: &Connection,
        since: &mut Instant,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        if take_answer(input)? && self.0.answered(*since) {
            *since = Instant::now();
            conn.send(QUESTION);
        }
        Ok(())
    }

    fn closed(&self, _: &Connection, _: Instant, reason: &CloseReason) {
        self.0.fail(reason);
    }

    fn connect_failed(&self, _: &Connection, reason: &CloseReason) {
        self.0.fail(reason);
    }
}

/// Clients that connect, ask once and close, again and again.
pub struct Handshakes {
    visits: Arc<Visits>,
    clients: usize,
    _runtime: Runtime,
}

/// State that all connections of the clients share.
struct Visits {
    window: Arc<Window>,
    handle: Handle,
    to: SocketAddr,
    tls: TlsClient,
    /// Kind that each handshake must have, unless any will do.
    kind: Option<HandshakeKind>,
}

impl Handshakes {
    /// Clients whose handshakes are all full, or all resume the sessions of earlier connections.
    ///
    /// # Errors
    /// The first connections fail.
    pub fn new(
        to: SocketAddr,
        folder: &Path,
        clients: usize,
        resumes: bool,
    ) -> Result<Self, Box<dyn Error>> {
        let runtime = Runtime::builder().name("visits").start()?;
        let tls = TlsClient::new(client_config(folder, resumes)?, ServerName::try_from(NAME)?);
        let visits = |kind| {
            let (handle, tls) = (runtime.handle(), tls.clone());
            Arc::new(Visits { window: Window::new(), handle, to, tls, kind })
        };
        if resumes {
            // The first handshake brings two tickets, each later one takes one and brings two.
            let first = visits(None);
            for _ in 0..clients {
                first.window.run_for(Duration::ZERO, 1, || first.begin())?;
            }
        }
        let kind = if resumes { HandshakeKind::Resumed } else { HandshakeKind::Full };
        Ok(Self { visits: visits(Some(kind)), clients, _runtime: runtime })
    }
}

impl Load for Handshakes {
    fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>> {
        let begin = || (0..self.clients).for_each(|_| self.visits.begin());
        self.visits.window.run_for(time, self.clients, begin)
    }

    fn answers_total(&self) -> u64 {
        self.visits.window.lock().answers_total
    }
}

impl Visits {
    /// Opens the next connection of a client.
    fn begin(self: &Arc<Self>) {
        let options = ConnectOptions::new().layer(self.tls.clone());
        let visit = Visit { visits: Arc::clone(self), since: Instant::now() };
        if let Err(error) = self.handle.connect_with(self.to, options, visit) {
            self.window.fail(error);
        }
    }
}

/// One connection of a client. The state is true when the answer is there.
struct Visit {
    visits: Arc<Visits>,
    since: Instant,
}

impl Protocol for Visit {
    type State = bool;

    fn opened(&self, conn: &Connection) -> Result<bool, Close> {
        let found = conn.extension().and_then(|info: &TlsInfo| info.handshake);
        let wanted = self.visits.kind;
        if wanted.is_some() && found != wanted {
            return Err(format!("a handshake was {found:?} instead of {wanted:?}").into());
        }
        conn.send(QUESTION);
        Ok(false)
    }

    fn received(
        &self,
        conn: &Connection,
        done: &mut bool,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        if take_answer(input)? {
            *done = true;
            conn.close("done");
            if self.visits.window.answered(self.since) {
                self.visits.begin();
            }
        }
        Ok(())
    }

    fn closed(&self, _: &Connection, done: bool, reason: &CloseReason) {
        if !done {
            self.visits.window.fail(reason);
        }
    }

    fn connect_failed(&self, _: &Connection, reason: &CloseReason) {
        self.visits.window.fail(reason);
    }
}

#[cfg(test)]
mod tests {
    use epoll_group::net::Listener;

    use super::*;

    fn start(folder: &Path) -> (Runtime, Listener) {
        let runtime = Runtime::builder().name("tls").start().unwrap();
        let tls = epoll_group::net::TlsServer::new(server_config(folder).unwrap());
        let options = ListenOptions::new().layer(tls);
        let listener = runtime.listen_with("127.0.0.1:0", options, Echo).unwrap();
        (runtime, listener)
    }

    #[test]
    fn questions_and_handshakes_are_answered_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        write_identity(folder.path()).unwrap();
        let (_runtime, listener) = start(folder.path());
        let to = listener.local_addr().to_string().parse().unwrap();
        let loads: [Box<dyn Load>; 3] = [
            Box::new(Questions::connect(to, folder.path(), 4).unwrap()),
            Box::new(Handshakes::new(to, folder.path(), 4, false).unwrap()),
            Box::new(Handshakes::new(to, folder.path(), 4, true).unwrap()),
        ];
        for mut load in loads {
            for window in 1..=2 {
                let report = load.run_for(Duration::from_millis(20)).unwrap();
                assert!(report.requests >= 4, "window {window}: {} answers", report.requests);
                assert_eq!(report.hist.len(), report.requests);
            }
            assert!(load.answers_total() >= 8);
        }
    }
}
