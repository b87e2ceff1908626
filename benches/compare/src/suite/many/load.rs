//! The usual load, and quiet connections that another process holds: one process alone has not
//! enough descriptors for both.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::experiment;
use crate::idle;
use crate::load::{self, Target};
use crate::process::Helper;
use crate::workload::{self, Report};

/// What a server is loaded with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Connections with one request of 64 bytes in flight each.
    pub(crate) active: usize,
    pub(crate) idle: usize,
}

/// Open connections.
#[derive(Debug)]
pub(crate) struct Load {
    active: load::Load,
    idle: Helper,
}

impl Load {
    /// # Errors
    /// Any connection that is not answered.
    pub(crate) fn connect(address: SocketAddr, shape: &Shape) -> Result<Self, Box<dyn Error>> {
        let target = Target::Tcp(address);
        let idle = idle::hold(&target, shape.idle)?;
        let options = experiment::Shape::plain(shape.active).options(target);
        Ok(Self { active: load::Load::connect(&options)?, idle })
    }

    pub(crate) fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>> {
        Ok(workload::frames(&mut self.active, time)?)
    }

    /// Of those connections that ask.
    pub(crate) fn answers_total(&self) -> u64 {
        self.active.answers_total()
    }

    /// Lets the quiet ones ask as well; all answers since the connections were opened.
    ///
    /// # Errors
    /// One that has no answer.
    pub(crate) fn finish(self) -> Result<u64, Box<dyn Error>> {
        Ok(self.active.answers_total() + idle::release(self.idle)?)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} active, {} idle", self.active, self.idle)
    }
}
