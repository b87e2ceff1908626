//! Login of one connection: the order of its messages, and the comparison of the password.
//!
//! ```text
//!             start            continue              accepted
//!   ┌──────┐ ──────▶ ┌────────────┐ ──────▶ ┌───────────┐ ──────▶ ┌──────┐
//!   │ idle │         │ challenged │         │ verifying │         │ done │
//!   └──────┘ ◀────── └────────────┘         └───────────┘         └──────┘
//!       ▲      error                  refused     │
//!       └─────────────────────────────────────────┘   too often: over, the connection closes
//! ```
//!
//! A challenge is valid until the next frame, so each proof is checked once. A message out of order
//! fails like a wrong password: it gets an error and counts as a failure.
//!
//! All refusals take the same time: an unknown user, an account without a password and a malformed
//! proof go through the same two hashes as a wrong password.
//!
//! The state machine knows no socket, no clock and no accounts. The connection limits its time and
//! bytes.

use std::fmt;
use std::hint::black_box;
use std::io;

use super::error::AuthError;
use crate::codec::auth::{DigestSalt, Proof, SALT_BYTES, StoredPassword, printable_salt};
use crate::codec::proto::session::AuthenticateStart;
use crate::net::Address;
use crate::sys::random;

/// Returns an unpredictable salt for one challenge.
pub(super) fn fresh_salt() -> io::Result<[u8; SALT_BYTES]> {
    let mut bytes = [0; SALT_BYTES];
    random::fill(&mut bytes)?;
    Ok(printable_salt(bytes))
}

/// State of the login of one connection.
#[derive(Debug)]
pub(super) struct Handshake {
    state: State,
    failures: usize,
    /// Number of failures that ends the login.
    most_failures: usize,
}

enum State {
    Idle,
    Challenged {
        salt: [u8; SALT_BYTES],
        /// User of the digest that the challenge asks for.
        digest_user: Option<Box<[u8]>>,
    },
    /// The service checks a claim.
    Verifying,
    Done,
    Over,
}

/// Next action of the connection.
#[derive(Debug)]
#[must_use]
pub(super) enum Step {
    /// Send this challenge.
    SendChallenge(Vec<u8>),
    /// Pass the claim to the service, then call [`Handshake::accepted`] or [`Handshake::refused`].
    Verify(Claim),
    /// Answer with the error. The client may begin again.
    Refuse(AuthError),
    /// Answer with the error and close the connection.
    Close(AuthError),
}

impl Handshake {
    /// Creates a login that is over after this number of failures.
    pub(super) const fn new(max_login_attempts: usize) -> Self {
        Self { state: State::Idle, failures: 0, most_failures: max_login_attempts }
    }

    /// Handles the start of a login. The salt is used once, see [`fresh_salt`]. `digest_salt`
    /// returns the salt of a user's digest, if the server stores one.
    pub(super) fn handle_start(
        &mut self,
        start: &AuthenticateStart,
        salt: [u8; SALT_BYTES],
        digest_salt: impl FnOnce(&[u8]) -> Option<DigestSalt>,
    ) -> Step {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle if is_known(&start.mech_name) => {
                let user = start.auth_data.as_deref().filter(|user| !user.is_empty());
                let of_account = user.and_then(|user| Some((user, digest_salt(user)?)));
                let challenge = match &of_account {
                    Some((_, digest_salt)) => digest_salt.challenge(&salt),
                    None => salt.to_vec(),
                };
                let digest_user = of_account.map(|(user, _)| user.into());
                self.state = State::Challenged { salt, digest_user };
                Step::SendChallenge(challenge)
            }
            State::Idle => self.fail(AuthError::protocol(UNKNOWN_MECHANISM)),
            other => self.out_of_order(&other),
        }
    }

    /// Handles the answer to the challenge.
    pub(super) fn handle_continue(&mut self, data: &[u8]) -> Step {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Challenged { salt, digest_user } => {
                match Claim::parse(salt, data, digest_user) {
                    Ok(claim) => {
                        self.state = State::Verifying;
                        Step::Verify(claim)
                    }
                    Err(error) => self.fail(error),
                }
            }
            other => self.out_of_order(&other),
        }
    }

    /// Notes that the service accepted the claim. Returns false if the login is over by now.
    pub(super) fn accepted(&mut self) -> bool {
        let verifying = matches!(self.state, State::Verifying);
        if verifying {
            self.state = State::Done;
        }
        verifying
    }

    /// Notes that the service refused the claim.
    pub(super) fn refused(&mut self, error: AuthError) -> Step {
        self.state = State::Idle;
        self.fail(error)
    }

    #[cfg(test)]
    pub(super) const fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    fn out_of_order(&mut self, state: &State) -> Step {
        let error = AuthError::protocol(OUT_OF_ORDER);
        match state {
            State::Idle | State::Challenged { .. } => self.fail(error),
            // A client would take an error for the answer to its claim, so the login is over.
            State::Verifying | State::Over => {
                self.state = State::Over;
                Step::Close(error)
            }
            State::Done => {
                self.state = State::Done;
                Step::Refuse(error)
            }
        }
    }

    fn fail(&mut self, error: AuthError) -> Step {
        self.failures += 1;
        if self.failures < self.most_failures {
            return Step::Refuse(error);
        }
        self.state = State::Over;
        Step::Close(error)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "Idle",
            Self::Challenged { .. } => "Challenged(..)",
            Self::Verifying => "Verifying",
            Self::Done => "Done",
            Self::Over => "Over",
        })
    }
}

/// The client may leave the name out, because there is one mechanism only.
fn is_known(mechanism: &[u8]) -> bool {
    mechanism.is_empty() || mechanism.eq_ignore_ascii_case(b"MYSQL41")
}

const UNKNOWN_MECHANISM: &str = "Unknown authentication mechanism, MYSQL41 is supported.";
pub(super) const OUT_OF_ORDER: &str = "Authentication messages out of order.";

/// Names and proof that a client sent. Nothing has been compared yet.
pub(super) struct Claim {
    salt: [u8; SALT_BYTES],
    user: Box<[u8]>,
    schema: Box<[u8]>,
    sent: Sent,
}

#[derive(Clone, Copy)]
enum Sent {
    Nothing,
    Proof(Proof),
    /// Bytes that cannot be a proof.
    Malformed,
}

impl Claim {
    /// Reads the answer to the challenge. A claim without a user, or of another user than the
    /// challenge is for, is refused here, in the same time as a wrong password.
    fn parse(
        salt: [u8; SALT_BYTES],
        data: &[u8],
        digest_user: Option<Box<[u8]>>,
    ) -> Result<Self, AuthError> {
        let mut parts = data.splitn(3, |&byte| byte == 0);
        let [schema, user, proof] = [(); 3].map(|()| parts.next());
        let sent = match proof {
            Some([]) => Sent::Nothing,
            Some(text) => Proof::parse(text).map_or(Sent::Malformed, Sent::Proof),
            None => Sent::Malformed,
        };
        let name = |part: Option<&[u8]>| part.unwrap_or_default().into();
        let claim = Self { salt, user: name(user), schema: name(schema), sent };
        let is_other = digest_user.is_some_and(|user| user != claim.user);
        if proof.is_none() || claim.user.is_empty() || is_other {
            claim.check(None)?;
            return Err(AuthError::Denied);
        }
        Ok(claim)
    }

    /// Compares the proof with the stored password; `None` for an unknown user. Both hashes are
    /// always computed: for an unknown user with a password that no client can have.
    fn check(&self, stored: Option<&StoredPassword>) -> Result<(), AuthError> {
        // No branch, so that the time does not reveal the user: an unknown one gets the password
        // `NOBODY`.
        let exists = stored.is_some();
        let hash = black_box(stored.unwrap_or(&NOBODY)).0;
        let (sent, is_proof) = match self.sent {
            Sent::Proof(proof) => (proof, true),
            Sent::Nothing | Sent::Malformed => (Proof::from_bytes(NOTHING), false),
        };
        let compared = StoredPassword(Some(hash.unwrap_or(NOTHING)));
        let fits = black_box(compared.accepts(&self.salt, Some(&sent)));
        let proved = fits & is_proof & exists & hash.is_some();
        let needs_none = matches!(self.sent, Sent::Nothing) & exists & hash.is_none();
        if proved | needs_none { Ok(()) } else { Err(AuthError::Denied) }
    }
}

const NOTHING: [u8; 20] = [0; 20];
static NOBODY: StoredPassword = StoredPassword(Some(NOTHING));

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("user", &self.user.escape_ascii().to_string())
            .field("schema", &self.schema.escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}

/// Login to be checked: names, address and proof.
///
/// A service looks up the account and leaves the comparison to [`check`](Self::check):
///
/// ```
/// use std::collections::HashMap;
///
/// use epoll_group::codec::auth::StoredPassword;
/// use epoll_group::session::{AuthError, Login};
///
/// fn authenticate(
///     accounts: &HashMap<Vec<u8>, StoredPassword>,
///     login: &Login<'_>,
/// ) -> Result<(), AuthError> {
///     login.check(accounts.get(login.user))
/// }
/// ```
///
/// The look-up of the account takes time too. In a hash table of one account, the times of a known
/// and an unknown name differed by 15 to 23 ns, of 20 µs for a login. A client without delays and
/// limits can measure that with 400 000 tries.
///
/// *Shape*: borrows all data. `Debug` shows the names and hides the proof.
#[derive(Clone, Copy)]
pub struct Login<'a> {
    claim: &'a Claim,
    /// Name of the account, never empty. Any bytes but 00; in UTF-8 by custom.
    pub user: &'a [u8],
    /// Database to check access to, usually empty. Sessions do not start in it.
    pub schema: &'a [u8],
    /// Address of the peer.
    pub peer_addr: &'a Address,
}

impl<'a> Login<'a> {
    pub(super) const fn new(claim: &'a Claim, peer_addr: &'a Address) -> Self {
        Self { claim, user: &claim.user, schema: &claim.schema, peer_addr }
    }

    /// Compares the proof with the stored password of the account; `None` for an unknown account.
    ///
    /// Call it for unknown accounts too: it takes the same time and returns the same error, so a
    /// client cannot find out names. Report a locked or expired account only after this has
    /// succeeded.
    ///
    /// For an account whose password is kept as a digest it is
    /// [`PasswordDigest::stored`](crate::codec::auth::PasswordDigest::stored), and
    /// [`Service::digest_salt`](super::Service::digest_salt) returns the salt.
    ///
    /// # Errors
    ///
    /// [`AuthError::Denied`]: the proof does not match the password, or the account is unknown.
    pub fn check(&self, stored: Option<&StoredPassword>) -> Result<(), AuthError> {
        self.claim.check(stored)
    }
}

impl fmt::Debug for Login<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("claim", self.claim)
            .field("peer_addr", &self.peer_addr.to_string())
            .finish()
    }
}

/// Runs a whole login without a connection. Returns true if `answer` to `salt` matches `stored`.
/// For measurements of time.
#[cfg(feature = "internal")]
pub(crate) fn attempt(
    salt: [u8; SALT_BYTES],
    answer: &[u8],
    stored: Option<&StoredPassword>,
) -> bool {
    let mut handshake = Handshake::new(usize::MAX);
    let _ = handshake.handle_start(&AuthenticateStart::default(), salt, |_| None);
    let Step::Verify(claim) = handshake.handle_continue(answer) else { return false };
    match Login::new(&claim, &Address::Unix(std::path::PathBuf::new())).check(stored) {
        Ok(()) => handshake.accepted(),
        Err(error) => {
            let _ = handshake.refused(error);
            false
        }
    }
}

#[cfg(test)]
mod tests;
