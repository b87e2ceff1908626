//! Charts of ratios, published and here, as one SVG: small panels with logarithmic axes.
//!
//! Text and published lines take the colour of the page around the SVG, so they suit each theme of
//! rustdoc. The crate `plotters` fixes the colour of text, and draws every dash as a line of its own.

use std::error::Error;
use std::fs;
use std::path::Path;

use lab::ratio::Spread;
use lab::units::Count;
use serde::de::DeserializeOwned;

use crate::pools;
use crate::suite::published;

/// One chart.
#[derive(Debug)]
pub struct Panel {
    pub title: String,
    pub x_title: &'static str,
    pub y_title: String,
    /// Values with a line across the panel. The first and the last are the ends of the axis.
    pub x_ticks: Vec<usize>,
    pub y_ticks: &'static [f64],
    pub lines: Vec<Line>,
}

#[derive(Debug)]
pub struct Line {
    pub look: Look,
    /// Ratios by number of connections or sessions, in ascending order. A published ratio is a
    /// single value, without an interval.
    pub points: Vec<(usize, Spread)>,
}

/// Kind of a line: meaning, colour and dashes.
#[derive(Clone, Copy, Debug)]
pub struct Look(&'static str, &'static str, &'static str);

pub const HERE: Look = Look("here, with interval", "#3987e0", "none");
pub const HERE_POOL: Look = Look("here, this crate’s pool", "#d9722a", "none");
/// The pool was published with 12 cores.
pub const FEWER_CORES: Look = Look("published, 64 cores (pool: 12)", "currentColor", "6 3");
pub const MORE_CORES: Look = Look("published, 104 cores", "currentColor", "1.5 2.5");

/// Logarithmic axis: the values at its ends, and its length.
struct Axis(f64, f64, f64);

const COLUMNS: usize = 3;
/// Distance of two panels.
const STEP: (f64, f64) = (320.0, 232.0);
/// Room of the curves of a panel.
const PLOT: (f64, f64) = (258.0, 150.0);
/// Room at the left of the curves, and above those of the first row.
const MARGIN: (f64, f64) = (38.0, 66.0);

/// For screen readers.
const ABOUT: &str = "<title>Published ratios of throughput, and the same ratios here</title>
<desc>Nine panels. Each divides the throughput of one design by that of another one, over the number of \
connections or sessions, on logarithmic axes. The page names the main numbers.</desc>
";

impl Look {
    fn path(&self, points: &str) -> String {
        let Self(_, colour, dashes) = self;
        format!(
            "<path d='M{points}' fill='none' stroke='{colour}' stroke-dasharray='{dashes}' \
             stroke-width='1.6'/>\n"
        )
    }
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let Self(from, to, length) = *self;
        ((value / from).ln() / (to / from).ln()).abs() * length
    }
}

/// The charts of a record of `--only published` and `pool`.
///
/// # Errors
/// A file of the record is missing or lacks a cell, or a ratio is outside of its axis.
pub fn draw(record: &Path) -> Result<String, Box<dyn Error>> {
    let mut panels = published::panels(record)?;
    panels.push(pools::panel(record)?);
    let rows = panels.len().div_ceil(COLUMNS) as f64;
    let (width, height) = (STEP.0 * COLUMNS as f64, MARGIN.1 + STEP.1 * rows - 40.0);
    let mut svg = format!(
        "<svg viewBox='0 0 {width} {height}' xmlns='http://www.w3.org/2000/svg' role='img' \
         font-family='sans-serif' font-size='11' fill='currentColor'>\n{ABOUT}"
    );
    for (place, look) in [HERE, FEWER_CORES, MORE_CORES, HERE_POOL].iter().enumerate() {
        let left = 38 + 238 * place;
        svg += &look.path(&format!("{left},12h28"));
        svg += &format!("<text x='{}' y='16'>{}</text>\n", left + 34, look.0);
    }
    for (place, panel) in panels.iter().enumerate() {
        let (column, row) = (place % COLUMNS, place / COLUMNS);
        let (left, top) = (MARGIN.0 + STEP.0 * column as f64, MARGIN.1 + STEP.1 * row as f64);
        svg += &format!("<g transform='translate({left},{top})'>\n{}</g>\n", panel.draw()?);
    }
    Ok(svg + "</svg>\n")
}

/// A file of a record.
pub fn read<T: DeserializeOwned>(record: &Path, name: &str) -> Result<T, String> {
    let file = record.join(name);
    let error = |error: &dyn Error| format!("{}: {error}", file.display());
    let text = fs::read_to_string(&file).map_err(|found| error(&found))?;
    serde_json::from_str(&text).map_err(|found| error(&found))
}

impl Panel {
    fn draw(&self) -> Result<String, String> {
        let Self { title, x_title, y_title, x_ticks, y_ticks, lines } = self;
        let ((left, right), (bottom, top)) = (ends(x_ticks), ends(y_ticks));
        let (width, height) = PLOT;
        let (across, up) = (Axis(left as f64, right as f64, width), Axis(top, bottom, height));
        for (x, ratio) in lines.iter().flat_map(|line| &line.points) {
            let (low, high) = ratio.interval();
            if low < bottom || high > top {
                return Err(format!(
                    "{title}, {x} {x_title}: {low:.2} to {high:.2} is outside of {bottom} to {top}"
                ));
            }
        }
        let (mut grid, mut labels) = (String::new(), String::new());
        for &tick in *y_ticks {
            let y = up.at(tick);
            grid += &format!("M0,{y:.1}h{width}");
            labels += &format!("<text x='-6' y='{:.1}' text-anchor='end'>{tick}</text>", y + 4.0);
        }
        for &tick in x_ticks {
            let x = across.at(tick as f64);
            let count = Count(tick as f64).to_string().replace(',', " ");
            grid += &format!("M{x:.1},0v{height}");
            labels += &format!(
                "<text x='{x:.1}' y='{}' text-anchor='middle'>{count}</text>",
                height + 14.0
            );
        }
        let mut svg = format!(
            "<text y='-24' font-size='12' font-weight='bold'>{title}</text>\n\
             <text y='-9'>{y_title}</text>\n{labels}\n\
             <text x='{}' y='{}' text-anchor='middle'>{x_title}</text>\n\
             <path d='{grid}' stroke='currentColor' stroke-opacity='.15'/>\n\
             <path d='M0,{:.1}h{width}' stroke='currentColor' stroke-opacity='.7'/>\n",
            width / 2.0,
            height + 29.0,
            up.at(1.0),
        );
        for Line { look, points } in lines {
            let along = |of: fn(&Spread) -> f64| {
                let place = |(x, ratio): &(usize, Spread)| {
                    format!("{:.1},{:.1}", across.at(*x as f64), up.at(of(ratio)))
                };
                points.iter().map(place).collect::<Vec<_>>()
            };
            let (low, mut high) =
                (along(|ratio| ratio.interval().0), along(|ratio| ratio.interval().1));
            if low != high {
                high.reverse();
                let around = [low, high].concat().join("L");
                svg += &format!("<path d='M{around}z' fill='{}' fill-opacity='.2'/>\n", look.1);
            }
            svg += &look.path(&along(|ratio| ratio.median).join("L"));
        }
        Ok(svg)
    }
}

fn ends<T: Copy>(ticks: &[T]) -> (T, T) {
    (ticks[0], ticks[ticks.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_charts_of_the_guide_are_those_of_the_record() {
        let record = Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../record/2026-11-29-report/published"
        ));
        let committed = include_str!("../../../src/guide/performance.svg");
        let drawn = draw(record).unwrap();
        assert!(drawn == committed, "draw them again with the command of benches/README.md");
    }
}
