//! How far a measurement has come, on standard error.

use std::fmt;
use std::time::{Duration, Instant};

use super::terminal::ProgressLine;

/// Windows done and still to do. On a terminal one line that is written anew with each window; a
/// line for each step elsewhere.
#[derive(Debug)]
pub(crate) struct Progress {
    line: ProgressLine,
    /// Of the steps in work, windows alone or a suite of a report.
    started: Instant,
    done: usize,
    total: usize,
    /// Suites of a report that are still to come, the one in work first; and their seconds, as guessed.
    suites: Vec<(&'static str, f64)>,
    /// Seconds that finished suites took, and those that were guessed for them.
    spent: f64,
    guessed: f64,
}

impl Progress {
    /// Of so many windows.
    pub(crate) fn new(windows: usize) -> Self {
        Self { total: windows, ..Self::report(Vec::new()) }
    }

    /// Of suites one after the other, each with the seconds that it is guessed to take.
    pub(crate) fn report(suites: Vec<(&'static str, f64)>) -> Self {
        Self {
            line: ProgressLine::new(),
            started: Instant::now(),
            done: 0,
            total: 0,
            suites,
            spent: 0.0,
            guessed: 0.0,
        }
    }

    /// The suite in work has so many windows more: what is left of it is told by them then, no
    /// longer by the guess.
    pub(crate) fn expect(&mut self, windows: usize) {
        if self.done == 0 && self.total == 0 {
            self.started = Instant::now();
        }
        self.total += windows;
    }

    /// One more window, or anything else that takes about as long as the others.
    pub(crate) fn window_done(&mut self, what: impl fmt::Display) {
        self.done += 1;
        let left = clock(self.left());
        let suite = self.suites.first().map_or_else(String::new, |(name, _)| format!("{name}, "));
        let (done, total) = (self.done, self.total.max(self.done));
        self.line.update(format_args!("{suite}{what}, window {done} of {total}, {left} left"));
    }

    /// Something that a log should name.
    pub(crate) fn step_done(&mut self, what: impl fmt::Display) {
        match self.suites.first() {
            Some((suite, _)) => {
                let left = clock(self.left());
                self.line.step_done(format_args!("{suite}, {what}, {left} left"));
            }
            None => self.line.step_done(what),
        }
    }

    /// The suite in work is over; the next one begins.
    pub(crate) fn suite_done(&mut self, took: Duration) {
        if !self.suites.is_empty() {
            let (_, guessed) = self.suites.remove(0);
            self.spent += took.as_secs_f64();
            self.guessed += guessed;
        }
        (self.started, self.done, self.total) = (Instant::now(), 0, 0);
    }

    /// Of everything.
    pub(crate) fn left(&self) -> Duration {
        let elapsed = self.started.elapsed().as_secs_f64();
        // Guesses are good for their proportions: this machine may be twice as slow.
        let pace = if self.guessed > 0.0 { self.spent / self.guessed } else { 1.0 };
        let guesses: Vec<f64> = self.suites.iter().map(|(_, seconds)| seconds * pace).collect();
        let in_work = guesses.first().map_or(0.0, |guess| (guess - elapsed).max(0.0));
        let in_work = match self.done {
            0 => in_work,
            done => elapsed / done as f64 * self.total.saturating_sub(done) as f64,
        };
        Duration::from_secs_f64(in_work + guesses.iter().skip(1).sum::<f64>())
    }
}

/// `95 s`, `12 min`: no more is known.
pub(crate) fn clock(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_guessed_at_the_pace_so_far() {
        let mut progress = Progress::report(vec![("a", 10.0), ("b", 20.0), ("c", 30.0)]);
        assert_eq!(progress.left().as_secs_f64().round(), 60.0);
        progress.suite_done(Duration::from_secs(20));
        // Twice as slow as guessed.
        assert_eq!(progress.left().as_secs_f64().round(), 100.0);
        progress.expect(4);
        for _ in 0..4 {
            progress.window_done("d");
        }
        assert_eq!(progress.left().as_secs_f64().round(), 60.0);
    }

    #[test]
    fn minutes_are_rounded_up() {
        assert_eq!(clock(Duration::from_secs(119)), "119 s");
        assert_eq!(clock(Duration::from_secs(121)), "3 min");
    }
}
