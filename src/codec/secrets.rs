//! `Debug` for messages that carry a proof of the password, because its output may end up in a log.

use std::fmt;

use crate::codec::proto::session::{AuthenticateContinue, AuthenticateStart};

/// Shows only the length of a secret.
struct Hidden(usize);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0)
    }
}

impl fmt::Debug for AuthenticateStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| Hidden(bytes.len()));
        f.debug_struct("AuthenticateStart")
            .field("mech_name", &self.mech_name.escape_ascii().to_string())
            .field("auth_data", &hidden(&self.auth_data))
            .field("initial_response", &hidden(&self.initial_response))
            .finish()
    }
}

impl fmt::Debug for AuthenticateContinue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticateContinue")
            .field("auth_data", &Hidden(self.auth_data.len()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_not_printed() {
        let proof = AuthenticateContinue { auth_data: b"*secret".to_vec() };
        assert_eq!(format!("{proof:?}"), "AuthenticateContinue { auth_data: <7 bytes> }");
        let start = AuthenticateStart {
            mech_name: b"MYSQL41".to_vec(),
            auth_data: Some(b"secret".to_vec()),
            initial_response: None,
        };
        assert_eq!(
            format!("{start:?}"),
            "AuthenticateStart { mech_name: \"MYSQL41\", auth_data: Some(<6 bytes>), \
             initial_response: None }"
        );
    }
}
