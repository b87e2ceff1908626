//! [`Proxy`]: the service. Requests of clients, each to the data node that it is for.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use epoll_group::client;
use epoll_group::codec::auth::StoredPassword;
use epoll_group::codec::message::{ClientMessage, ScalarValue};
use epoll_group::codec::proto::plan::{AnyPlan, ExecPlan};
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::codec::proto::value::{Any, AnyType};
use epoll_group::session::{
    Account, AuthError, Cancel, Login, Peer, Plan, Reply, Request, Savepoint, Service,
    SessionError, SessionId, Sql,
};

use crate::front::Front;
use crate::nodes::Nodes;
use crate::refuse::{not_utf8, of_node, unknown_database, unroutable, wrong_arguments};
use crate::route::{self, Cache, Effect, Own, Rows, Statement};
use crate::turn::{Turn, Work};

/// Longest request about a session, in bytes. A session keeps up to 64 settings, if it has a session of a
/// data node, too.
const LONGEST_SETTING: usize = 16 * 1024;
/// Longest request about a transaction that is at no data node yet, in bytes. A session keeps up to 16.
const LONGEST_STEP: usize = 1024;

/// Everything that sessions share.
pub struct Proxy {
    users: HashMap<Vec<u8>, StoredPassword>,
    pub nodes: Arc<Nodes>,
    pub statements: Cache,
}

impl Proxy {
    pub fn new(
        users: impl IntoIterator<Item = (String, String)>,
        nodes: Arc<Nodes>,
        catalogue: route::Catalogue,
    ) -> Self {
        let users = users
            .into_iter()
            .map(|(name, password)| (name.into_bytes(), StoredPassword::of(password.as_bytes())));
        Self { users: users.collect(), nodes, statements: Cache::new(catalogue) }
    }

    fn check_schema(&self, name: &[u8]) -> Result<(), SessionError> {
        let schema = self.statements.catalogue().schema.as_bytes();
        if name.is_empty() || name.eq_ignore_ascii_case(schema) {
            return Ok(());
        }
        Err(unknown_database(name))
    }

    fn sql(&self, sql: Sql<'_>) -> Result<(Work, client::Request), SessionError> {
        if let Some(schema) = sql.schema {
            self.check_schema(schema)?;
        }
        check_arguments(sql.message)?;
        check_hint(sql.hint)?;
        let known = self.statements.read(sql.text);
        let statement = known.statement.as_ref().map_err(Clone::clone)?;
        let work = match statement {
            &Statement::At(node, effect) => Work::Forward { node, effect },
            Statement::Define(node) => {
                let nodes = node.map_or_else(|| self.all_nodes(), |node| vec![node]);
                Work::Gather { nodes, merge: None }
            }
            Statement::Rows(rows) => self.of_rows(rows, sql)?,
            Statement::Own(own) => Work::Own(own.clone()),
        };
        if let Work::Own(Own::Set { mode: Some(argument), .. }) = work {
            check_mode(sql.message.args.get(argument))?;
        }
        let schema = &self.statements.catalogue().schema;
        let mut request = passed_on(sql.message, sql.text, schema);
        match &work {
            Work::Own(own) => {
                let limit = match own {
                    Own::Begin | Own::Savepoint(..) | Own::NextTransaction => LONGEST_STEP,
                    _ => LONGEST_SETTING,
                };
                check_kept(ClientMessage::ExecSql(request.clone()).body_bytes(), limit)?;
            }
            Work::Gather { merge, .. } => {
                request.chunk_result = None;
                if let Some((merge, range)) = merge {
                    request.stmt = Some(merge.text_for_nodes(*range).into_bytes());
                    merge.limit_arguments(*range, &mut request.args);
                }
            }
            Work::Forward { .. } if known.is_frequent => {
                request.stmt_digest = Some(known.digest.to_vec());
                return Ok((work, client::Request::statement(request).cached()));
            }
            _ => {}
        }
        Ok((work, client::Request::statement(request)))
    }

    fn all_nodes(&self) -> Vec<usize> {
        (0..self.nodes.len()).collect()
    }

    /// Work for these rows.
    fn of_rows(&self, rows: &Rows, sql: Sql<'_>) -> Result<Work, SessionError> {
        let effect = rows.effect;
        let nodes = match &rows.ids {
            Some(ids) => ids.nodes(sql.args, self.nodes.len())?,
            None => self.all_nodes(),
        };
        match (&nodes[..], &rows.merge) {
            ([], _) => Ok(Work::Forward { node: None, effect }),
            (&[node], _) => Ok(Work::Forward { node: Some(node), effect }),
            (_, Ok(merge)) => {
                let range = merge.range(sql.args)?;
                Ok(Work::Gather { nodes, merge: Some((Arc::clone(merge), range)) })
            }
            (&[first, .., last], Err(why)) => {
                let [first, last] = [first, last].map(|node| &self.nodes.get(node).name);
                let table = &rows.table;
                let why =
                    format!("its rows of {table} are on data nodes {first} to {last}, and {why}");
                Err(unroutable("the statement", why))
            }
        }
    }

    fn plan(&self, plan: &Plan<'_>) -> Result<(Work, client::Request), SessionError> {
        let catalogue = self.statements.catalogue();
        let node = route::of_plan(plan.plan, plan.message, catalogue, self.nodes.len())?;
        let message = plan_passed_on(plan.message, plan.plan, plan.audit);
        let work = Work::Forward { node, effect: Effect::Read };
        Ok((work, client::Request::exec_plan(message).cached()))
    }
}

/// Refuses a long request about the session, which the session may keep until the client goes.
fn check_kept(bytes: usize, limit: usize) -> Result<(), SessionError> {
    if bytes > limit {
        let why = format!("with its arguments it has {bytes} bytes, above {limit}");
        return Err(unroutable("the statement about the session", why));
    }
    Ok(())
}

fn savepoint(savepoint: &Savepoint<'_>) -> Result<(Work, client::Request), SessionError> {
    check_kept(savepoint.name.len(), LONGEST_STEP)?;
    let name = std::str::from_utf8(savepoint.name).map_err(|_| not_utf8())?;
    let request = client::Request::savepoint(savepoint.action, name);
    Ok((Work::Own(Own::Savepoint(name.to_owned(), savepoint.action)), request))
}

/// Refuses an argument for `sql_mode` as a mode in the text is refused.
fn check_mode(argument: Option<&Any>) -> Result<(), SessionError> {
    let scalar = argument.and_then(|any| any.scalar.as_ref());
    let mode = match scalar.map(|scalar| scalar.value()) {
        Some(Ok(ScalarValue::String(text, _) | ScalarValue::Octets(text))) => {
            Some(String::from_utf8_lossy(text))
        }
        _ => None,
    };
    route::check_mode(mode.as_deref())
}

/// The request to a data node for a client's request. The digest is the proxy's own. The schema is named,
/// because it may not be the first of the node's account.
fn passed_on(message: &StmtExecute, text: &[u8], schema: &str) -> StmtExecute {
    StmtExecute {
        stmt: Some(text.to_vec()),
        schema_name: Some(schema.as_bytes().to_vec()),
        args: message.args.clone(),
        compact_metadata: message.compact_metadata,
        reset_error: Some(true),
        snapshot_seq: message.snapshot_seq,
        commit_seq: message.commit_seq,
        hint: message.hint.clone(),
        chunk_result: message.chunk_result,
        use_cts_transaction: message.use_cts_transaction,
        feed_back: message.feed_back,
        capabilities: message.capabilities,
        mark_distributed: message.mark_distributed,
        query_via_flashback_area: message.query_via_flashback_area,
        ..StmtExecute::default()
    }
}

/// The same for a plan. The plan and its text for the audit log may come from the cache.
fn plan_passed_on(message: &ExecPlan, plan: &AnyPlan, audit: &[u8]) -> ExecPlan {
    ExecPlan {
        plan: Some(plan.clone()),
        plan_digest: None,
        audit_str: Some(audit.to_vec()).filter(|text| !text.is_empty()),
        reset_error: Some(true),
        ..message.clone()
    }
}

/// Refuses arguments that are no values. A name or a raw text would become part of the text, which the
/// router has read without it.
fn check_arguments(message: &StmtExecute) -> Result<(), SessionError> {
    for (number, argument) in message.args.iter().enumerate() {
        let scalar = argument.scalar.as_ref().filter(|_| argument.r#type == AnyType::Scalar);
        let Some(scalar) = scalar else {
            return Err(wrong_arguments(format_args!("argument {number} is no scalar")));
        };
        let what = match scalar.value() {
            Err(error) => error.to_string(),
            Ok(ScalarValue::Identifier(_)) => "a name is no value".to_owned(),
            Ok(ScalarValue::RawString(_)) => "a raw text is no value".to_owned(),
            Ok(ScalarValue::Placeholder(_)) => "a placeholder is no value".to_owned(),
            Ok(_) => continue,
        };
        return Err(wrong_arguments(format_args!("argument {number}: {what}")));
    }
    Ok(())
}

/// Refuses a hint other than comments. A node would run it with the text, which the router has read
/// without it.
fn check_hint(hint: &[u8]) -> Result<(), SessionError> {
    let mut rest = std::str::from_utf8(hint).map_err(|_| not_utf8())?.trim_ascii_start();
    while !rest.is_empty() {
        let comment = rest.strip_prefix("/*").and_then(|text| text.split_once("*/"));
        let Some((_, behind)) = comment.filter(|(text, _)| !text.starts_with('!')) else {
            let begin: String = rest.chars().take(32).collect();
            let why = "a hint is comments /* */ without code";
            return Err(unroutable(format_args!("the hint at '{begin}'"), why));
        };
        rest = behind.trim_ascii_start();
    }
    Ok(())
}

impl Service for Proxy {
    type Session = Arc<Front>;

    fn authenticate(&self, login: &Login<'_>) -> Result<Account, AuthError> {
        login.check(self.users.get(login.user))?;
        let name = std::str::from_utf8(login.user).map_err(|_| AuthError::Denied)?;
        self.check_schema(login.schema).map_err(|_| AuthError::Schema)?;
        Ok(Account::new(name))
    }

    fn open(&self, peer: &Peer, id: SessionId) -> Result<(Arc<Front>, Cancel), SessionError> {
        let schema = &self.statements.catalogue().schema;
        let front = Arc::new(Front::new(id.number, peer.account.name(), schema));
        let cancels = Arc::clone(&front.cancels);
        Ok((front, Cancel::new(move |_| cancels.cancel())))
    }

    fn execute(
        &self,
        front: &mut Arc<Front>,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let understood = match request {
            Request::Sql(sql) => self.sql(sql),
            Request::Plan(plan) => self.plan(&plan),
            Request::Savepoint(message) => savepoint(&message),
            _ => Err(unroutable("this request", "it does not know it")),
        };
        let (work, request) = understood.inspect_err(|error| front.state().told.failed(error))?;
        let turn = Turn {
            nodes: Arc::clone(&self.nodes),
            front: Arc::clone(front),
            ticket: front.cancels.begin(),
            deadline: Instant::now() + self.nodes.patience.statement,
            deferred: reply.defer(),
            work,
            request,
        };
        front.enter(turn);
        Ok(())
    }

    fn in_transaction(&self, front: &Arc<Front>) -> bool {
        front.state().is_in_transaction()
    }

    fn cancelled(&self, front: &mut Arc<Front>) {
        front.cancels.clear();
    }

    fn closed(&self, front: Arc<Front>) {
        front.close();
    }

    /// Gets timestamps from the first data node, so all clients see one order.
    fn timestamp(&self, _: &Peer, count: u32) -> Result<u64, SessionError> {
        let node = self.nodes.get(0);
        let version = node.version();
        let first = node.endpoint(version).client.timestamps(count);
        first.map_err(|error| {
            if error.server_error().is_none() {
                self.nodes.suspect(0, version);
            }
            of_node(node.at(version), &error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use epoll_group::codec::proto::value::{Scalar, ScalarType};

    #[test]
    fn a_node_gets_the_fields_of_a_statement_but_those_that_the_proxy_decides() {
        let message = StmtExecute {
            stmt: None,
            args: vec![Scalar::signed(7).into()],
            namespace: Some("sql".into()),
            compact_metadata: Some(true),
            schema_name: Some("sbtest".into()),
            session_variables: Vec::new(),
            encoding: Some("utf8".into()),
            token: Some(1),
            reset_error: Some(false),
            snapshot_seq: Some(2),
            commit_seq: Some(3),
            stmt_digest: Some(b"digest".to_vec()),
            hint: Some(b"/* hint */".to_vec()),
            chunk_result: Some(true),
            use_cts_transaction: Some(true),
            feed_back: Some(true),
            capabilities: Some(4),
            mark_distributed: Some(true),
            query_via_flashback_area: Some(true),
        };
        let decided = StmtExecute {
            stmt: Some(b"select ?".to_vec()),
            namespace: None,
            schema_name: Some("stock".into()),
            encoding: None,
            token: None,
            reset_error: Some(true),
            stmt_digest: None,
            ..message.clone()
        };
        assert_eq!(passed_on(&message, b"select ?", "stock"), decided);
    }

    #[test]
    fn a_node_gets_the_audit_text_of_a_cached_plan() {
        let plan = AnyPlan::default();
        let message = ExecPlan { plan_digest: Some(b"digest".to_vec()), ..ExecPlan::default() };
        let asked = plan_passed_on(&message, &plan, b"scan t");
        assert_eq!(asked.audit_str.as_deref(), Some(&b"scan t"[..]));
        assert_eq!((asked.plan, asked.plan_digest), (Some(plan), None));
    }

    #[test]
    fn arguments_are_values() {
        let check = |argument: Any| {
            let args = vec![Scalar::signed(1).into(), argument];
            check_arguments(&StmtExecute { args, ..StmtExecute::default() })
        };
        assert!(check(Scalar::string("a", None).into()).is_ok());
        assert!(check(Scalar::null().into()).is_ok());
        let galaxy = Scalar {
            v_identifier_galaxy: Scalar::identifier("a").v_identifier,
            ..Scalar::default()
        };
        let galaxy = Scalar { r#type: ScalarType::VIdentifierGalaxy, ..galaxy };
        for no_value in [
            Scalar::identifier("a").into(),
            galaxy.into(),
            Scalar::raw_string("1 or 1").into(),
            Scalar::placeholder(0).into(),
            Scalar { v_signed_int: None, ..Scalar::signed(1) }.into(),
            Any { r#type: AnyType::Array, ..Any::default() },
        ] {
            let error = check(no_value).expect_err("no value");
            let text = String::from_utf8_lossy(&error.message).into_owned();
            assert!(error.code == 1210 && text.contains("argument 1"), "{text}");
        }
    }
}
