//! `top`: a live view of a server, drawn from what its admin listener tells.

mod bars;
mod frame;
mod line;
mod sample;
mod screen;

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

use super::admin::Client;
use super::args::Top;
use super::load::Target;
use super::signals::EndSignals;
use frame::View;
use line::{Look, Size};
pub(crate) use sample::Sample;
use screen::{Key, Screen};

/// How soon a key, a signal or another size of the terminal is noticed.
const NOTICE: Duration = Duration::from_millis(100);

/// Shows a server until q or Ctrl-C, or once.
pub(crate) fn run(args: &Top, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    if args.once || !io::stdout().is_terminal() {
        let (_, frame) = once(&args.target, args.interval)?;
        return Ok(out.write_all(frame.as_bytes())?);
    }
    let signals = EndSignals::catch()?;
    let mut client = Client::connect(&args.target)?;
    let mut view = View::new(&args.target, Sample::fetch(&mut client)?);
    let screen = Screen::enter()?;
    loop {
        let next = Instant::now() + args.interval;
        let mut size = None;
        loop {
            if size != Some(screen.size()) {
                size = Some(screen.size());
                let text = view.text(screen.size(), Look::Ansi);
                screen.show(&text)?;
            }
            let left = next.saturating_duration_since(Instant::now());
            let key = screen.key(left.min(NOTICE))?;
            if signals.wait_for(Duration::ZERO)?.is_some() {
                return Ok(());
            }
            match key {
                Some(Key::Quit) => return Ok(()),
                Some(Key::Reset) => drop(client.ask("reset")?),
                Some(Key::Histograms) => {
                    let on = if view.histograms_on() { "off" } else { "on" };
                    client.ask(&format!("set enable_perf_hist {on}"))?;
                }
                None if left.is_zero() => break,
                None => continue,
            }
            break;
        }
        view.advance(Sample::fetch(&mut client)?);
    }
}

/// Two looks with a pause between them, and the frame that they make, without escape codes.
pub(crate) fn once(target: &Target, pause: Duration) -> Result<(Sample, String), Box<dyn Error>> {
    let mut client = Client::connect(target)?;
    let mut view = View::new(target, Sample::fetch(&mut client)?);
    thread::sleep(pause);
    let sample = Sample::fetch(&mut client)?;
    view.advance(sample.clone());
    let size = screen::size_of_stdout().unwrap_or_default();
    let size = Size { rows: usize::MAX, ..size };
    Ok((sample, view.text(size, Look::Plain)))
}
