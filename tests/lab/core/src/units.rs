//! Numbers for people: times, sizes and counts.

use std::fmt;
use std::time::Duration;

/// Nanoseconds, printed with three digits and a unit.
#[derive(Clone, Copy, Debug)]
pub struct Nanos(pub f64);

/// Bytes, printed with three digits and a binary unit.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub f64);

/// A number or a rate: with a decimal below 10, with commas from a thousand on.
#[derive(Clone, Copy, Debug)]
pub struct Count(pub f64);

impl Nanos {
    pub fn of(time: Duration) -> Self {
        Self(time.as_nanos() as f64)
    }

    pub fn from_seconds(seconds: f64) -> Self {
        Self(seconds * 1e9)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
        // 999.6 would be printed with four digits: it belongs to the next unit.
        let fitting = units.into_iter().find(|(unit, _)| self.0 >= unit * 0.9995);
        let (unit, name) = fitting.unwrap_or((1.0, "ns"));
        let decimals = if unit == 1.0 { 0 } else { decimals(self.0 / unit) };
        f.pad(&format!("{:.decimals$} {name}", self.0 / unit))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0;
        let mut units = ["B", "KiB", "MiB", "GiB"].into_iter();
        let unit = loop {
            match units.next() {
                Some(unit) if value < 999.5 => break unit,
                Some(_) => value /= 1024.0,
                None => break "TiB",
            }
        };
        let decimals = if unit == "B" { 0 } else { decimals(value) };
        f.pad(&format!("{value:.decimals$} {unit}"))
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 9.95 && self.0.fract() != 0.0 {
            return f.pad(&format!("{:.1}", self.0));
        }
        let digits = format!("{:.0}", self.0);
        let mut text = String::new();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

fn decimals(value: f64) -> usize {
    match value {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        for (value, text) in [(7.0, "7 ns"), (999.6, "1.00 µs"), (123_456.0, "123 µs")] {
            assert_eq!(Nanos(value).to_string(), text);
        }
        for (value, text) in [(0.0, "0 B"), (999.6, "0.98 KiB"), (12_582_912.0, "12.0 MiB")] {
            assert_eq!(Bytes(value).to_string(), text);
        }
        for (value, text) in
            [(0.0, "0"), (3.06, "3.1"), (12.5, "12"), (999.0, "999"), (1_234_567.0, "1,234,567")]
        {
            assert_eq!(Count(value).to_string(), text);
        }
        assert_eq!(format!("{:>8}|{:<4}|", Nanos(7.0), Count(2.0)), "    7 ns|2   |");
    }
}
