//! The login: what the client sent for a challenge and a password is what this crate computes.

use epoll_group::codec::auth::{Challenge, Proof, Reply, StoredPassword};
use epoll_group::codec::proto::session::AuthenticateContinue;
use prost::Message;

use crate::vectors;

#[test]
fn replies_are_what_the_client_sent() {
    for vector in vectors("auth_vectors.jsonl") {
        let challenge = vector.bytes("challenge_hex");
        let (user, password) = (vector.text("user"), vector.text("password"));
        let expected = vector.bytes("auth_data_hex");

        let challenge = Challenge::parse(&challenge).unwrap_or_else(|e| panic!("{vector}: {e}"));
        assert_eq!(challenge, Challenge::Classic(challenge.hashed()), "{vector}");
        let proof = challenge.prove(password.as_bytes(), 0).expect("it is classic");
        assert_eq!(proof, Proof::new(password.as_bytes(), challenge.hashed()), "{vector}");
        let reply = Reply::new(user.as_bytes(), proof);
        assert_eq!(reply.encode().as_ref(), Ok(&expected), "{vector}");
        assert_eq!(Reply::parse(&expected), Ok(reply), "{vector}");

        let message = AuthenticateContinue { auth_data: expected };
        assert_eq!(message.encode_to_vec(), vector.bytes("body_hex"), "{vector}");
    }
}

#[test]
fn replies_are_accepted_by_who_stored_the_hash_and_by_nobody_else() {
    let vectors = vectors("auth_vectors.jsonl");
    for vector in &vectors {
        let challenge = vector.bytes("challenge_hex");
        let data = vector.bytes("auth_data_hex");
        let reply = Reply::parse(&data).unwrap_or_else(|error| panic!("{vector}: {error}"));
        let stored = StoredPassword::of(vector.text("password").as_bytes());
        let hash = vector.text("stored_sha1_sha1_hex");
        let text = if hash.is_empty() { String::new() } else { format!("*{hash}") };
        assert_eq!(StoredPassword::parse(text.as_bytes()), Ok(stored), "{vector}");
        for other in &vectors {
            let other_password = StoredPassword::of(other.text("password").as_bytes());
            let accepted = other_password.accepts(&challenge, reply.proof.as_ref());
            let same = vector.text("password") == other.text("password");
            assert_eq!(accepted, same, "{vector}, {other}");
        }
        let longer = [&challenge[..], &[0]].concat();
        assert_eq!(stored.accepts(&longer, reply.proof.as_ref()), hash.is_empty(), "{vector}");
    }
}
