//! [`Progress`]: a bar on a terminal, lines elsewhere; on standard error.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};

/// Progress of one step of a program: a bar on a terminal, lines elsewhere; on standard error.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    name: String,
    lines: Lines,
    /// Last tenth that was printed.
    told: u64,
}

/// Lines that are printed where there is no terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// One for each tenth.
    EachTenth,
    /// One at the end.
    AtTheEnd,
    /// None, and no bar on a terminal.
    None,
}

/// Steps of a bar.
const STEPS: u64 = 1000;
const STYLE: &str = "{prefix}  {bar:30} {percent:>3} %  {msg}";

impl Progress {
    /// Begins a step. Nothing is printed yet.
    pub fn new(name: impl Into<String>, lines: Lines) -> Self {
        let name = name.into();
        let drawn = lines != Lines::None && io::stderr().is_terminal();
        let bar = drawn.then(|| {
            let style = ProgressStyle::with_template(STYLE);
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            let style = style.progress_chars("█▉▊▋▌▍▎▏ ");
            ProgressBar::new(STEPS).with_style(style).with_prefix(name.clone())
        });
        Self { bar, name, lines, told: 0 }
    }

    /// Shows the share that is done, from 0 to 1.
    pub fn update(&mut self, done: f64, text: impl fmt::Display) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.to_string());
            bar.set_position((done * STEPS as f64) as u64);
        } else if let Some(tenth) = self.next_tenth(done) {
            line(format_args!("{}: {} %: {text}", self.name, tenth * 10));
        }
    }

    /// Ends the step. A terminal keeps nothing of it: the output that follows says it all again.
    pub fn finish(self, text: impl fmt::Display) {
        match &self.bar {
            Some(bar) => bar.finish_and_clear(),
            None if self.lines == Lines::None => {}
            None => line(format_args!("{}: {text}", self.name)),
        }
    }

    /// Returns a tenth that was not printed yet. The last one is left to the end.
    fn next_tenth(&mut self, done: f64) -> Option<u64> {
        let tenth = (done * 10.0) as u64;
        let is_new = self.lines == Lines::EachTenth && tenth > self.told && tenth < 10;
        is_new.then(|| {
            self.told = tenth;
            tenth
        })
    }
}

/// Prints a line. Progress that cannot be shown is no reason to stop.
fn line(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenth_is_told_once() {
        let mut progress = Progress::new("load", Lines::EachTenth);
        let told: Vec<_> = [0.0, 0.05, 0.1, 0.19, 0.35, 0.39, 0.99, 1.0]
            .map(|done| progress.next_tenth(done))
            .into();
        assert_eq!(told, [None, None, Some(1), None, Some(3), None, Some(9), None]);
        let mut quiet = Progress::new("load", Lines::AtTheEnd);
        assert_eq!(quiet.next_tenth(0.5), None);
    }

    #[test]
    fn the_style_of_the_bar_is_understood() {
        assert!(ProgressStyle::with_template(STYLE).is_ok());
    }
}
