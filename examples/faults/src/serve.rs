//! A relay until SIGTERM or SIGINT.

use std::error::Error;
use std::io::{self, Write};

use lab::address::Address;
use lab::faults::passage::End;
use lab::faults::relay::{Flow, Relay, Report, Totals};
use lab::faults::script::{Direction, How, Script};
use lab::signals::EndSignals;
use lab::units::Nanos;

/// Passes connections on until SIGTERM or SIGINT, with a line for each that has ended.
pub(crate) fn run(
    listen: &Address,
    to: &Address,
    script: Script,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let signals = EndSignals::catch()?;
    let seed = script.seed;
    let tell = |report: &Report| {
        // The relay goes on even if standard output is closed.
        let _ = writeln!(io::stdout(), "{}", line(report));
    };
    let relay = Relay::start_telling(script, listen, to.clone(), tell)
        .map_err(|error| format!("cannot listen on {listen}: {error}"))?;
    writeln!(out, "listening on {}", relay.address())?;
    writeln!(out, "passing on to {to}, seed {seed}")?;
    out.flush()?;
    let signal = signals.wait()?;
    let Totals { connections, cut, lost, .. } = relay.end();
    writeln!(out, "{signal}: {connections} connections, {cut} cut, {lost} lost")?;
    Ok(())
}

fn line(report: &Report) -> String {
    let flow = |name, flow: Flow| {
        let corrupted =
            if flow.flipped > 0 { format!(", {} corrupted", flow.flipped) } else { String::new() };
        format!("{name} {} of {} bytes{corrupted}", flow.sent, flow.taken)
    };
    let (up, down) = (flow("up", report.up), flow("down", report.down));
    let time = Nanos::of(report.time);
    format!("connection {}: {up}; {down}; {} after {time}", report.connection, end(report.end))
}

fn end(end: End) -> String {
    match end {
        End::Finished => "finished".to_owned(),
        End::Cut(direction, byte, how) => {
            let how = if how == How::Close { "cut" } else { "reset" };
            let direction = if direction == Direction::Up { "up" } else { "down" };
            format!("{how} at byte {byte} {direction}")
        }
        End::CutByOwner => "cut at the end".to_owned(),
        End::Lost => "broken off".to_owned(),
        End::Unreachable => "server not reached".to_owned(),
    }
}
