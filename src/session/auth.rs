//! The login of one connection: who may say what when, and what is compared.
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
//! A challenge is there from the frame that asks for it until the next frame, whatever that is, so
//! that no proof is looked at twice. What comes in the wrong order fails like a wrong password:
//! with an error, and it counts.
//!
//! What it costs to say no does not depend on why: an unknown user, an account without a password
//! and a malformed proof go through the same two hashes as a wrong password.
//!
//! The machine knows no socket, no clock and no accounts. Its limits on time and on bytes are those
//! of the connection.

use std::fmt;
use std::hint::black_box;
use std::io;

use super::error::AuthError;
use crate::codec::auth::{PROOF_BYTES, Proof, SALT_BYTES, StoredPassword, printable_salt};
use crate::codec::message::session::AuthenticateStart;
use crate::net::Address;
use crate::sys::random;

/// A salt for one challenge, which nobody can foresee.
pub(super) fn fresh_salt() -> io::Result<[u8; SALT_BYTES]> {
    let mut bytes = [0; SALT_BYTES];
    random::fill(&mut bytes)?;
    Ok(printable_salt(bytes))
}

/// The login of one connection.
#[derive(Debug)]
pub(super) struct Handshake {
    state: State,
    failures: usize,
    /// With so many failures it is over.
    most_failures: usize,
}

enum State {
    Idle,
    Challenged([u8; SALT_BYTES]),
    /// The service looks at a claim.
    Verifying,
    Done,
    Over,
}

/// What the connection has to do.
#[derive(Debug)]
#[must_use]
pub(super) enum Step {
    /// Send this challenge.
    SendChallenge([u8; SALT_BYTES]),
    /// Ask the service about the claim, and then say [`Handshake::accepted`] or
    /// [`Handshake::refused`].
    Verify(Claim),
    /// Answer with the error. The client may begin again.
    Refuse(AuthError),
    /// Answer with the error and close the connection.
    Close(AuthError),
}

impl Handshake {
    /// A login that is over when it has failed so often.
    pub(super) const fn new(max_login_attempts: usize) -> Self {
        Self { state: State::Idle, failures: 0, most_failures: max_login_attempts }
    }

    /// The client begins. The salt is used once, see [`fresh_salt`].
    pub(super) fn handle_start(
        &mut self,
        start: &AuthenticateStart,
        salt: [u8; SALT_BYTES],
    ) -> Step {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle if is_known(&start.mech_name) => {
                self.state = State::Challenged(salt);
                Step::SendChallenge(salt)
            }
            State::Idle => self.fail(AuthError::protocol(UNKNOWN_MECHANISM)),
            other => self.out_of_order(&other),
        }
    }

    /// The client answers the challenge.
    pub(super) fn handle_continue(&mut self, data: &[u8]) -> Step {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Challenged(salt) => match Claim::parse(salt, data) {
                Ok(claim) => {
                    self.state = State::Verifying;
                    Step::Verify(claim)
                }
                Err(error) => self.fail(error),
            },
            other => self.out_of_order(&other),
        }
    }

    /// The service accepts the claim. False if the login is over by now.
    pub(super) fn accepted(&mut self) -> bool {
        let verifying = matches!(self.state, State::Verifying);
        if verifying {
            self.state = State::Done;
        }
        verifying
    }

    /// The service refuses the claim.
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
            State::Idle | State::Challenged(_) => self.fail(error),
            // Its answer would be taken for that of the claim.
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
            Self::Challenged(_) => "Challenged(..)",
            Self::Verifying => "Verifying",
            Self::Done => "Done",
            Self::Over => "Over",
        })
    }
}

/// Who names no mechanism gets the only one there is.
fn is_known(mechanism: &[u8]) -> bool {
    mechanism.is_empty() || mechanism.eq_ignore_ascii_case(b"MYSQL41")
}

const UNKNOWN_MECHANISM: &str = "Unknown authentication mechanism, MYSQL41 is supported.";
const OUT_OF_ORDER: &str = "Authentication messages out of order.";

/// Who somebody says to be, with what shall prove it. Nothing has been compared yet.
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
    /// What can be no proof of anything.
    Malformed,
}

impl Claim {
    /// Reads what answers the challenge. What names no user is refused here, and takes as long as
    /// any other wrong password.
    fn parse(salt: [u8; SALT_BYTES], data: &[u8]) -> Result<Self, AuthError> {
        let mut parts = data.splitn(3, |&byte| byte == 0);
        let [schema, user, proof] = [(); 3].map(|()| parts.next());
        let sent = match proof {
            Some([]) => Sent::Nothing,
            Some(text) => Proof::parse(text).map_or(Sent::Malformed, Sent::Proof),
            None => Sent::Malformed,
        };
        let name = |part: Option<&[u8]>| part.unwrap_or_default().into();
        let claim = Self { salt, user: name(user), schema: name(schema), sent };
        if proof.is_none() || claim.user.is_empty() {
            claim.check(None)?;
            return Err(AuthError::denied());
        }
        Ok(claim)
    }

    /// Compares with what is kept of the user's password; `None` for an unknown user. Both hashes
    /// are computed in any case, of something that nobody has as password if need be.
    fn check(&self, stored: Option<&StoredPassword>) -> Result<(), AuthError> {
        // One way for both, without a branch: who is unknown gets the account of nobody.
        let exists = stored.is_some();
        let hash = black_box(stored.unwrap_or(&NOBODY)).as_bytes();
        let (sent, is_proof) = match self.sent {
            Sent::Proof(proof) => (proof, true),
            Sent::Nothing | Sent::Malformed => (Proof::from_bytes(NOTHING), false),
        };
        let compared = StoredPassword::from_bytes(*hash.unwrap_or(&NOTHING));
        let fits = black_box(compared.accepts(&self.salt, Some(&sent)));
        let proved = fits & is_proof & exists & hash.is_some();
        let needs_none = matches!(self.sent, Sent::Nothing) & exists & hash.is_none();
        if proved | needs_none { Ok(()) } else { Err(AuthError::denied()) }
    }
}

const NOTHING: [u8; PROOF_BYTES] = [0; PROOF_BYTES];
static NOBODY: StoredPassword = StoredPassword::from_bytes(NOTHING);

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("user", &self.user.escape_ascii().to_string())
            .field("schema", &self.schema.escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}

/// Somebody who wants to log in: who it says to be, from where, and a proof to compare.
///
/// A service looks the account up and leaves the comparison to [`check`](Self::check):
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
///     login.check(accounts.get(login.user()))
/// }
/// ```
///
/// The time of the look-up is the service's: with a hash table of one account it was 15 to 23 ns more or less
/// for a name that was not in it, of 20 µs for a whole login, which 400 000 tries without delays or limits can
/// tell.
///
/// *Shape*: borrows everything. `Debug` shows the names and hides the proof.
#[derive(Clone, Copy)]
pub struct Login<'a> {
    claim: &'a Claim,
    peer: &'a Address,
}

impl<'a> Login<'a> {
    pub(super) const fn new(claim: &'a Claim, peer: &'a Address) -> Self {
        Self { claim, peer }
    }

    /// Name of the account, never empty. Any bytes but 00; in UTF-8 by custom.
    #[must_use]
    pub const fn user(&self) -> &'a [u8] {
        &self.claim.user
    }

    /// Database to check access to, usually empty. Sessions do not start in it.
    #[must_use]
    pub const fn schema(&self) -> &'a [u8] {
        &self.claim.schema
    }

    /// Where the connection comes from.
    #[must_use]
    pub const fn peer_addr(&self) -> &'a Address {
        self.peer
    }

    /// Compares the proof with what is kept of the account's password; `None` for an account that
    /// does not exist.
    ///
    /// Call it for both, so that who guesses names learns nothing: it takes the same time and gives
    /// the same error. Only after it has succeeded tell of an account that it is locked or has
    /// expired.
    ///
    /// # Errors
    ///
    /// [`AuthError::denied`]: the proof is not one of that password, or there is no account.
    pub fn check(&self, stored: Option<&StoredPassword>) -> Result<(), AuthError> {
        self.claim.check(stored)
    }
}

impl fmt::Debug for Login<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("claim", self.claim)
            .field("peer_addr", &self.peer.to_string())
            .finish()
    }
}

/// A whole login by the machine, without a connection: whether who answers `salt` so gets into an
/// account of which this is kept. For those who time it.
#[cfg(feature = "internal")]
pub(crate) fn attempt(
    salt: [u8; SALT_BYTES],
    answer: &[u8],
    stored: Option<&StoredPassword>,
) -> bool {
    let mut handshake = Handshake::new(usize::MAX);
    let _ = handshake.handle_start(&AuthenticateStart::default(), salt);
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
