//! [`Proxy`]: the service. Requests of clients, each to the data node that it is for.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use epoll_group::client;
use epoll_group::codec::auth::StoredPassword;
use epoll_group::codec::message::plan::ExecPlan;
use epoll_group::codec::message::sql::StmtExecute;
use epoll_group::codec::message::value::{any, scalar};
use epoll_group::session::{
    Account, AuthError, Cancel, Login, Peer, Plan, Reply, Request, Service, SessionError,
    SessionId, Sql,
};

use crate::ask::{Ask, Asked, RETRIES};
use crate::front::Front;
use crate::nodes::{Lease, Nodes};
use crate::passage::{End, Passage, User};
use crate::refuse::{unknown_database, unroutable, wrong_arguments};
use crate::route::{self, Cache, Effect, Known, Rows, Statement};

/// Everything that sessions share.
pub(crate) struct Proxy {
    users: HashMap<Vec<u8>, StoredPassword>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) statements: Cache,
}

impl Proxy {
    pub(crate) fn new(
        users: impl IntoIterator<Item = (String, String)>,
        nodes: Arc<Nodes>,
        catalogue: route::Catalogue,
    ) -> Self {
        let users = users.into_iter().map(|(name, password)| {
            (name.into_bytes(), StoredPassword::of(password.as_bytes()))
        });
        Self { users: users.collect(), nodes, statements: Cache::new(catalogue) }
    }

    fn check_schema(&self, name: &[u8]) -> Result<(), SessionError> {
        let schema = self.statements.catalogue().schema.as_bytes();
        if name.is_empty() || name.eq_ignore_ascii_case(schema) {
            return Ok(());
        }
        Err(unknown_database(name))
    }

    fn sql(
        &self,
        front: &Arc<Front>,
        sql: Sql<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        if let Some(schema) = sql.schema() {
            self.check_schema(schema)?;
        }
        check_arguments(sql.message())?;
        let known = self.statements.read(sql.text());
        let (node, effect) = match known.statement.as_ref().map_err(Clone::clone)? {
            Statement::Anywhere => (self.nodes.any(), Effect::Read),
            Statement::Rows(rows) => (self.node_of(rows, sql)?, rows.effect),
            other => return Err(unroutable(format_args!("{other:?}"), "not done yet")),
        };
        let request = passed_on(sql.message(), sql.text(), &known);
        self.forward(front, node, request, effect, reply);
        Ok(())
    }

    fn node_of(&self, rows: &Rows, sql: Sql<'_>) -> Result<usize, SessionError> {
        let Some(ids) = &rows.ids else { return Err(unroutable("all rows", "not done yet")) };
        let nodes = ids.nodes(sql.args(), self.nodes.len())?;
        match nodes[..] {
            [] => Ok(self.nodes.any()),
            [node] => Ok(node),
            [first, second, ..] => Err(unroutable(
                "the statement",
                format_args!(
                    "its rows of {} are on data nodes {} and {}",
                    rows.table,
                    self.nodes.get(first).name,
                    self.nodes.get(second).name
                ),
            )),
        }
    }

    fn plan(
        &self,
        front: &Arc<Front>,
        plan: &Plan<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let catalogue = self.statements.catalogue();
        let node = route::of_plan(plan.plan(), plan.message(), catalogue, self.nodes.len())?;
        let node = node.unwrap_or_else(|| self.nodes.any());
        let message = ExecPlan {
            plan: Some(plan.plan().clone()),
            plan_digest: None,
            reset_error: Some(true),
            ..plan.message().clone()
        };
        let request = client::Request::exec_plan(message).cached();
        self.forward(front, node, request, Effect::Read, reply);
        Ok(())
    }

    fn forward(
        &self,
        front: &Arc<Front>,
        node: usize,
        request: client::Request,
        effect: Effect,
        reply: &mut Reply<'_>,
    ) {
        let deferred = reply.defer();
        let ticket = front.cancels.begin();
        let ask = Ask {
            nodes: Arc::clone(&self.nodes),
            node,
            request: Some(request),
            effect,
            steps: VecDeque::new(),
            deadline: Instant::now() + self.nodes.patience.statement,
            ticket: ticket.clone(),
            retries: RETRIES,
        };
        let front = Arc::clone(front);
        let then = move |asked: Asked| {
            let Asked { lease, result, .. } = asked;
            deferred.finish(move |reply| {
                let answer = result?;
                reply.relay(Passage::new(answer, Borrowed { front, lease, ticket }));
                Ok(())
            });
        };
        ask.start(None, Box::new(then));
    }
}

/// A session that was borrowed for one statement.
struct Borrowed {
    front: Arc<Front>,
    lease: Option<Lease>,
    ticket: crate::cancel::Ticket,
}

impl User for Borrowed {
    fn ended(self, end: End<'_>) {
        self.ticket.ended();
        drop(self.lease);
        if let End::Well(summary) = end {
            self.front.state().told.note(summary);
        }
    }
}

/// What a data node is asked, of what a client asked. The digest is that of the proxy.
fn passed_on(message: &StmtExecute, text: &[u8], known: &Known) -> client::Request {
    let passed = StmtExecute {
        stmt: Some(text.to_vec()),
        args: message.args.clone(),
        compact_metadata: message.compact_metadata,
        reset_error: Some(true),
        snapshot_seq: message.snapshot_seq,
        commit_seq: message.commit_seq,
        stmt_digest: known.is_frequent.then(|| known.digest.to_vec()),
        hint: message.hint.clone(),
        chunk_result: message.chunk_result,
        use_cts_transaction: message.use_cts_transaction,
        feed_back: message.feed_back,
        capabilities: message.capabilities,
        ..StmtExecute::default()
    };
    let request = client::Request::statement(passed);
    if known.is_frequent { request.cached() } else { request }
}

/// A name in place of a value would become a part of the text, behind the back of who read it.
fn check_arguments(message: &StmtExecute) -> Result<(), SessionError> {
    let is_name = |argument: &epoll_group::codec::message::value::Any| {
        argument.r#type != i32::from(any::Type::Scalar)
            || argument.scalar.as_ref().is_none_or(|scalar| {
                let kind = scalar.r#type;
                kind == i32::from(scalar::Type::VIdentifier)
                    || kind == i32::from(scalar::Type::VPlaceholder)
            })
    };
    if message.args.iter().any(is_name) {
        return Err(wrong_arguments("a name is no value"));
    }
    Ok(())
}

impl Service for Proxy {
    type Session = Arc<Front>;

    fn authenticate(&self, login: &Login<'_>) -> Result<Account, AuthError> {
        login.check(self.users.get(login.user()))?;
        let name = std::str::from_utf8(login.user()).map_err(|_| AuthError::denied())?;
        self.check_schema(login.schema()).map_err(|_| AuthError::schema())?;
        Ok(Account::new(name))
    }

    fn open(&self, peer: &Peer, id: SessionId) -> Result<(Arc<Front>, Cancel), SessionError> {
        let front = Arc::new(Front::new(id.number(), peer.account().name()));
        let cancels = Arc::clone(&front.cancels);
        Ok((front, Cancel::new(move |_| cancels.cancel())))
    }

    fn execute(
        &self,
        front: &mut Arc<Front>,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        match request {
            Request::Sql(sql) => self.sql(front, sql, reply),
            Request::Plan(plan) => self.plan(front, &plan, reply),
            _ => Err(unroutable("this request", "it does not know it")),
        }
    }
}
