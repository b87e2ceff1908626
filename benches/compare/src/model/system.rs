//! What is simulated: queues, threads, and the ways of requests.

/// All that is simulated.
#[derive(Clone, Debug)]
pub(crate) struct System {
    /// 128 at most.
    pub(crate) cores: u32,
    pub(crate) queues: Vec<Queue>,
    pub(crate) threads: Vec<Thread>,
    /// The way of each client's requests.
    pub(crate) routes: Vec<Vec<Hop>>,
    pub(crate) arrivals: Arrivals,
    /// The part of each job's cost that is random, exponentially distributed: 0 to 1.
    pub(crate) variation: f64,
    pub(crate) burn: Option<Burn>,
}

/// Where jobs wait for the threads of this queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queue {
    /// Jobs that a thread takes at a time.
    pub(crate) batch: usize,
    /// CPU time of one such taking, whatever is there.
    pub(crate) poll: u64,
    /// Time for each job in which nobody else takes from this queue, nor puts into it.
    pub(crate) take: u64,
    /// The same when a thread puts one into it.
    pub(crate) put: u64,
    /// Threads that take at the same time.
    pub(crate) pollers: usize,
    /// The second and later ones come when so many jobs wait.
    pub(crate) crowd: usize,
    /// From the first job for a queue whose threads sleep until one of them is ready to run.
    pub(crate) wake_delay: u64,
    /// CPU time of who wakes, if it is a thread.
    pub(crate) wake: u64,
    /// CPU time of who is woken.
    pub(crate) resume: u64,
    /// A thread that has finished nothing between two looks, so far apart, loses its batch and
    /// its turn to take; until it is done, all threads take, one job at a time.
    pub(crate) lookout: Option<u64>,
}

/// It serves one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread {
    pub(crate) queue: usize,
    /// A bit for each core that it may run on.
    pub(crate) cores: u128,
}

/// One queue on the way of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub(crate) queue: usize,
    pub(crate) cost: u64,
    /// Whether this is where a handler may burn.
    pub(crate) handler: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrivals {
    /// Each client asks again after this time, exponentially distributed.
    Closed { think: u64 },
    /// Some client asks after this time, exponentially distributed, answered or not.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "closed forms are mostly those of open queues")
    )]
    Open { between: u64 },
}

/// Some handlers take longer, and nobody knows which.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burn {
    pub(crate) chance: f64,
    pub(crate) cost: u64,
}
