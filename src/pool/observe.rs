//! [`Observer`]: what happens, for logs and metrics of the host.

use std::time::Duration;

use super::error::GetError;
use super::manage::{ManageError, Target, Version};
use super::status::Discard;

/// Told of what happens, on the thread where it does, never under a lock of the pool.
///
/// Each method does nothing unless it is written. They are called often and should be quick. A panic
/// goes no further.
pub trait Observer<K>: Send + Sync + 'static {
    /// A connection was made, in this time.
    fn connected(&self, target: &Target<'_, K>, took: Duration) {
        let _ = (target, took);
    }

    /// A connection could not be made.
    fn connect_failed(&self, target: &Target<'_, K>, error: &ManageError) {
        let _ = (target, error);
    }

    /// A connection was handed out to somebody who waited for so long.
    fn handed_out(&self, target: &Target<'_, K>, waited: Duration) {
        let _ = (target, waited);
    }

    /// A connection came back, fit for the next.
    fn returned(&self, target: &Target<'_, K>) {
        let _ = target;
    }

    /// A connection is about to be dropped.
    fn discarded(&self, target: &Target<'_, K>, why: Discard) {
        let _ = (target, why);
    }

    /// Somebody got no connection.
    fn refused(&self, key: &K, error: &GetError) {
        let _ = (key, error);
    }

    /// A backend is another version now.
    fn failed_over(&self, key: &K, from: Version, to: Version) {
        let _ = (key, from, to);
    }
}
