//! Work that a request gives its server: the text, the key under which the server may have it, or
//! both.

use crate::codec::proto::plan::{AnyPlan, ExecPlan};
use crate::codec::proto::sql::StmtExecute;

/// Work that a request gives its server.
///
/// *Shape*: borrows from the request. Keys are usually MD5 sums of 16 bytes, but any bytes will do.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Source<'a, T: ?Sized> {
    /// The text: run it.
    Text(&'a T),
    /// The text and its key: keep it and run it.
    Store(&'a T, &'a [u8]),
    /// The key: run the entry that is kept under it, or answer that there is none.
    Cached(&'a [u8]),
    /// Nothing; an error of the request.
    Neither,
}

impl<'a, T: ?Sized> Source<'a, T> {
    const fn new(text: Option<&'a T>, key: Option<&'a [u8]>) -> Self {
        match (text, key) {
            (Some(text), None) => Self::Text(text),
            (Some(text), Some(key)) => Self::Store(text, key),
            (None, Some(key)) => Self::Cached(key),
            (None, None) => Self::Neither,
        }
    }
}

impl StmtExecute {
    /// Work that the server is to run.
    #[must_use]
    pub fn source(&self) -> Source<'_, [u8]> {
        Source::new(self.stmt.as_deref(), self.stmt_digest.as_deref())
    }
}

impl ExecPlan {
    /// Work that the server is to run.
    #[must_use]
    pub fn source(&self) -> Source<'_, AnyPlan> {
        Source::new(self.plan.as_ref(), self.plan_digest.as_deref())
    }

    /// Request that leaves the plan to the server's cache. It lacks the plan and its text for the
    /// audit log, which is kept with the plan.
    #[must_use]
    pub fn cached(&self, digest: impl Into<Vec<u8>>) -> Self {
        // Taking the plan out first would need a mutable request. Copying the plan is the cost that
        // the cache avoids.
        Self {
            transaction: self.transaction.clone(),
            plan: None,
            plan_digest: Some(digest.into()),
            parameters: self.parameters.clone(),
            session_variables: self.session_variables.clone(),
            trace_id: self.trace_id.clone(),
            audit_str: None,
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_for_the_cache_lacks_the_plan_and_its_text_alone() {
        let request = ExecPlan {
            plan: Some(AnyPlan::default()),
            audit_str: Some(b"scan t".to_vec()),
            trace_id: Some(b"id".to_vec()),
            token: Some(10_240),
            reset_error: Some(false),
            ..ExecPlan::default()
        };
        assert!(matches!(request.source(), Source::Text(_)));
        let cached = request.cached(*b"key");
        assert_eq!(cached.source(), Source::Cached(b"key"));
        let again = ExecPlan {
            plan: request.plan.clone(),
            audit_str: request.audit_str.clone(),
            plan_digest: None,
            ..cached
        };
        assert_eq!(again, request);
        assert_eq!(ExecPlan::default().source(), Source::Neither);
    }
}
