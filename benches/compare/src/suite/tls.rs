//! Servers over TLS.

use std::error::Error;

use clap::ValueEnum;

use super::{Suite, section};
use crate::experiment::{Experiment, Lane, Plan};
use crate::report::Section;
use crate::server::Server;
use crate::table::{
    CPU_EACH, CPU_RATIO, P99_EACH, P99_RATIO, REQUESTS, REQUESTS_RATIO, SWITCHES, SYSCALLS,
};
use crate::tls::{Handshakes, Questions, TlsServer, write_identity};
use crate::workload::Workload;

pub const SUITE: Suite =
    Suite { name: "tls", question: "What do handshakes and requests over TLS cost?", run };

const CONNECTIONS: [usize; 2] = [32, 512];
/// Clients that come and go. A client of `rustls` keeps 8 tickets of a server.
const CLIENTS: usize = 8;

const TEXT: &str = "\
Requests of 64 bytes are echoed over TLS, one at a time on each connection. A request of the tables of handshakes is \
a connection that is opened, asks once and is closed. All servers have the same rustls, cryptography of ring, \
certificate (ECDSA, P-256) and stateless tickets. The load is the library's client.";

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    write_identity(folder.path())?;
    let at = folder.path().to_owned();
    let mut workloads = Vec::new();
    for connections in CONNECTIONS {
        let at = at.clone();
        workloads.push(Workload::new(format!("{connections} x 1, TLS"), move |address| {
            Questions::connect(address, &at, connections)
        }));
    }
    for (kind, resumes) in [("full", false), ("resumed", true)] {
        let at = at.clone();
        workloads.push(Workload::new(format!("{kind} handshakes, {CLIENTS} clients"), move |to| {
            Handshakes::new(to, &at, CLIENTS, resumes)
        }));
    }
    let mut found = Vec::new();
    for workload in workloads {
        let lanes = TlsServer::value_variants().iter().map(|server| {
            let name = server.to_possible_value().expect("no server is hidden");
            Lane {
                name: name.get_name().to_owned(),
                server: Server::Tls(*server, at.clone()),
                workload: workload.clone(),
            }
        });
        found.push(Experiment::new(workload.to_string(), lanes).run(plan)?);
    }
    let columns =
        [REQUESTS, REQUESTS_RATIO, CPU_EACH, CPU_RATIO, P99_EACH, P99_RATIO, SWITCHES, SYSCALLS];
    Ok(section("TLS", TEXT, &found, &columns))
}
