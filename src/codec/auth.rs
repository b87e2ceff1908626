//! Arithmetic of the login: the hashes, their comparison, and the form of the texts.
//!
//! Four frames, all on session 0, make a login:
//!
//! ```text
//!  client                                                server
//!    │  AuthenticateStart     mechanism "MYSQL41"           │
//!    ├─────────────────────────────────────────────────────▶│
//!    │  AuthenticateContinue  challenge, 20 random bytes    │
//!    │◀─────────────────────────────────────────────────────┤
//!    │  AuthenticateContinue  schema 00 user 00 [*40 hex]   │
//!    ├─────────────────────────────────────────────────────▶│
//!    │  AuthenticateOk, or Error                            │
//!    │◀─────────────────────────────────────────────────────┤
//! ```
//!
//! The password does not travel, and the server does not know it. The server keeps
//! `SHA1(SHA1(password))`, a [`StoredPassword`]. The client sends a [`Proof`],
//!
//! ```text
//! stage1 = SHA1(password)      stage2 = SHA1(stage1)
//! proof  = stage1 XOR SHA1(challenge ‖ stage2)
//! ```
//!
//! from which the server computes `stage1` back and hashes it. The comparison takes constant time.
//! With an empty password the client sends no proof.
//!
//! # The newer form
//!
//! The last byte of a [`Challenge`] of 21 or 45 bytes says two things. The server expects the
//! user's name in the first frame already, and only the salt of the challenge, its first 20 bytes,
//! is hashed. With 45 bytes the SHA-256-crypt digest of the password ([`PasswordDigest`]) replaces
//! the password before the same arithmetic.
//!
//! The layout of the challenge and that of the reply are known with certainty. It is not known
//! whether the salt of the digest is cut to 16 bytes, as SHA-256-crypt does elsewhere. This module
//! uses all 20 bytes, as MySQL does for the same account. No recorded login of this form was
//! available.
//!
//! # What it does not protect
//!
//! The scheme is SHA-1 without a protected channel. An attacker that reads one login and knows the
//! stored hash obtains `SHA1(password)`, which suffices to log in. The traffic after the login is
//! neither encrypted nor signed.
//!
//! This module knows no connection and no order of frames. It logs nothing. Secret values show as
//! `..` under `Debug`.
//!
//! # Examples
//!
//! ```
//! use epoll_group::codec::auth::{Challenge, Reply, StoredPassword};
//!
//! // The client has a password and a challenge.
//! let challenge = b"0123456789abcdefghij";
//! let proof = Challenge::parse(challenge)?.prove(b"secret", 0)?;
//! let bytes = Reply::new(b"root", proof).encode()?;
//! assert!(bytes.starts_with(b"\0root\0*f5cac3f3b3d"));
//!
//! // The server has the stored hash, the challenge that it sent, and the reply.
//! let stored = StoredPassword::parse(b"*14E65567ABDB5135D0CFD9A70B3032C179A49EE7")?;
//! let reply = Reply::parse(&bytes)?;
//! assert_eq!(reply.user, b"root");
//! assert!(stored.accepts(challenge, reply.proof.as_ref()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod challenge;
mod crypt;
mod proof;
mod reply;

pub use challenge::{Challenge, ChallengeError, SALT_BYTES, printable_salt};
pub use crypt::{DigestSalt, PasswordDigest};
pub use proof::{Proof, StoredPassword, TextError};
pub use reply::{Reply, ReplyError};
