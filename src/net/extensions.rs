//! [`Extensions`]: values that a user attaches to a connection, one of each type.
#![forbid(unsafe_code)]

use std::any::Any;
use std::sync::OnceLock;

/// List of values. It only grows, so a reader needs no lock.
#[derive(Default)]
pub(super) struct Extensions(OnceLock<Box<Node>>);

struct Node {
    value: Box<dyn Any + Send + Sync>,
    next: Extensions,
}

impl Extensions {
    pub(super) fn get<T: Any>(&self) -> Option<&T> {
        let mut list = self;
        loop {
            let node = list.0.get()?;
            if let Some(value) = node.value.downcast_ref() {
                return Some(value);
            }
            list = &node.next;
        }
    }

    /// Adds a value. Gives it back if there is one of its type.
    pub(super) fn set<T: Any + Send + Sync>(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        let mut list = self;
        loop {
            let node = list.0.get_or_init(|| {
                let value = value.take().expect("the first empty place takes it");
                Box::new(Node { value: Box::new(value), next: Self::default() })
            });
            match value {
                None => return Ok(()),
                Some(value) if node.value.is::<T>() => return Err(value),
                Some(_) => list = &node.next,
            }
        }
    }
}
