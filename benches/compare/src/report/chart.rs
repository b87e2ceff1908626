//! Charts as SVG: small, the same bytes for the same numbers, readable on any page.
//!
//! ```text
//!            title
//!   label ┌────────────────┐
//!         │         .-o────┼──▪ name       each line ends at its own name:
//!         │   o---o'   .-x─┼──▪ name       names keep their distance
//!         │ x----x---x'    │
//!         └────────────────┘
//!              label
//! ```

use std::error::Error;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Chart, Series};

mod axis;
mod looks;

use axis::Span;
use looks::{Look, Marker};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plot<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// A place on the picture, in pixels from its upper left corner.
type Pixel = (i32, i32);

const SIZE: (u32, u32) = (980, 520);
/// Left of it, the axis; right of it, the names.
const LEFT: u32 = 88;
const RIGHT: u32 = 278;
/// Above it, the title; below it, numbers and what they count.
const TOP: u32 = 54;
const BOTTOM: u32 = 46;
/// In pixels; plotters takes another measure, see [`font`].
const TITLE_SIZE: f64 = 18.0;
const TEXT_SIZE: f64 = 13.0;
/// From one name to the next.
const NAME_GAP: i32 = 18;
const MARKER_PIXELS: i32 = 4;

const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

/// Draws it.
///
/// # Errors
/// No point that its axes can show.
pub(super) fn svg(chart: &Chart) -> Result<String, Box<dyn Error>> {
    let visible =
        |&(x, y): &(f64, f64)| axis::shows(chart.x.scale, x) && axis::shows(chart.y.scale, y);
    let points = || chart.series.iter().flat_map(|series| &series.points).copied().filter(visible);
    let empty = || format!("chart {}: no point to show", chart.name);
    let x = Span::of_x(chart.x.scale, points().map(|(x, _)| x)).ok_or_else(empty)?;
    let y = Span::of_y(chart.y.scale, points().map(|(_, y)| y)).ok_or_else(empty)?;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut plot = axes(&area, chart, &x, &y)?;
        let mut lines: Vec<Line<'_>> = Vec::new();
        for (series, look) in chart.series.iter().zip(looks::of(&chart.series)) {
            let points = series.points.iter().filter(|point| visible(point));
            let points = points.map(|&(px, py)| (x.place(px), y.place(py))).collect();
            lines.push((series, look, points));
        }
        // Ours is drawn last: no line covers it.
        lines.sort_by_key(|(_, look, _)| look.is_ours);
        for (_, look, points) in &lines {
            draw_line(&area, &mut plot, look, points)?;
        }
        draw_names(&area, &plot, &lines)?;
        area.present()?;
    }
    Ok(tidy(&text))
}

type Line<'a> = (&'a Series, Look, Vec<(f64, f64)>);

/// The frame with its grid and what stands around it.
fn axes<'a, 'b>(
    area: &'a Area<'b>,
    chart: &Chart,
    x: &Span,
    y: &Span,
) -> Result<Plot<'a, 'b>, Box<dyn Error>> {
    let mut plot = ChartBuilder::on(area)
        .margin_top(TOP)
        .margin_bottom(BOTTOM)
        .margin_left(LEFT)
        .margin_right(RIGHT)
        .build_cartesian_2d(x.from..x.to, y.from..y.to)?;
    let (left, top) = plot.backend_coord(&(x.from, y.to));
    let (right, bottom) = plot.backend_coord(&(x.to, y.from));
    let grid = |from: Pixel, to: Pixel| PathElement::new(vec![from, to], GRID.stroke_width(1));
    for &(at, ref label) in &x.ticks {
        let (across, _) = plot.backend_coord(&(at, y.from));
        area.draw(&grid((across, top), (across, bottom)))?;
        write(area, label, (across, bottom + 8), (HPos::Center, VPos::Top), INK)?;
    }
    for &(at, ref label) in &y.ticks {
        let (_, down) = plot.backend_coord(&(x.from, at));
        area.draw(&grid((left, down), (right, down)))?;
        write(area, label, (left - 8, down), (HPos::Right, VPos::Center), INK)?;
    }
    let frame = PathElement::new(vec![(left, top), (left, bottom), (right, bottom)], INK);
    area.draw(&frame)?;
    let middle = (left + right) / 2;
    write(area, chart.x.label, (middle, bottom + 30), (HPos::Center, VPos::Top), INK)?;
    write(area, chart.y.label, (12, top - 8), (HPos::Left, VPos::Bottom), INK)?;
    let title = font(TITLE_SIZE, FontStyle::Bold).color(&INK);
    area.draw(&Text::new(chart.title.clone(), (12, 8), title))?;
    plot.configure_mesh().disable_mesh().disable_axes().draw()?;
    Ok(plot)
}

fn draw_line(
    area: &Area<'_>,
    plot: &mut Plot<'_, '_>,
    look: &Look,
    points: &[(f64, f64)],
) -> Result<(), Box<dyn Error>> {
    let style = look.color.stroke_width(look.width);
    plot.draw_series(LineSeries::new(points.iter().copied(), style))?;
    for point in points {
        draw_marker(area, look, plot.backend_coord(point))?;
    }
    Ok(())
}

/// The names beside the ends of their lines, or as near as the others leave room.
fn draw_names(
    area: &Area<'_>,
    plot: &Plot<'_, '_>,
    lines: &[Line<'_>],
) -> Result<(), Box<dyn Error>> {
    let ends = lines.iter().filter_map(|(series, look, points)| {
        points.last().map(|end| (plot.backend_coord(end), *series, look))
    });
    let mut ends: Vec<_> = ends.collect();
    ends.sort_by_key(|&((_, y), ..)| y);
    let wanted: Vec<i32> = ends.iter().map(|&((_, y), ..)| y).collect();
    let (right, bottom) = ((SIZE.0 - RIGHT) as i32, (SIZE.1 - BOTTOM) as i32);
    for ((end, series, look), y) in ends.into_iter().zip(spaced(&wanted, NAME_GAP, bottom)) {
        let leader = vec![end, (right + 14, y), (right + 18, y)];
        area.draw(&PathElement::new(leader, look.color.mix(0.55).stroke_width(1)))?;
        draw_marker(area, look, (right + 22, y))?;
        let weight = if look.is_ours { FontStyle::Bold } else { FontStyle::Normal };
        let style = font(TEXT_SIZE, weight).color(&look.color);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(series.name.clone(), (right + 31, y), style))?;
    }
    Ok(())
}

/// Moves what is too near to its neighbour: down first, then all of it up when it ends too low.
/// `wanted` is in order.
fn spaced(wanted: &[i32], gap: i32, lowest: i32) -> Vec<i32> {
    let mut places = wanted.to_vec();
    for place in 1..places.len() {
        places[place] = places[place].max(places[place - 1] + gap);
    }
    let mut limit = lowest;
    for place in places.iter_mut().rev() {
        *place = (*place).min(limit);
        limit = *place - gap;
    }
    places
}

fn draw_marker(area: &Area<'_>, look: &Look, (x, y): Pixel) -> Result<(), Box<dyn Error>> {
    let size = MARKER_PIXELS + i32::from(look.is_ours);
    let (filled, outline) = (look.color.filled(), look.color.stroke_width(2));
    let square = [(x - size + 1, y - size + 1), (x + size - 1, y + size - 1)];
    let corners = |side: i32| vec![(x, y - side), (x + side, y), (x, y + side), (x - side, y)];
    let white = WHITE.filled();
    match look.marker {
        Marker::Disc => area.draw(&Circle::new((x, y), size, filled))?,
        Marker::Square => area.draw(&Rectangle::new(square, filled))?,
        Marker::Diamond => area.draw(&Polygon::new(corners(size + 1), filled))?,
        Marker::Triangle => area.draw(&TriangleMarker::new((x, y), size + 2, filled))?,
        Marker::Cross => area.draw(&Cross::new((x, y), size - 1, outline))?,
        Marker::Ring => {
            area.draw(&Circle::new((x, y), size, white))?;
            area.draw(&Circle::new((x, y), size - 1, outline))?;
        }
        Marker::Frame => {
            area.draw(&Rectangle::new(square, white))?;
            let [(left, top), (right, bottom)] = square;
            let around = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
            area.draw(&PathElement::new(around, outline))?;
        }
    }
    Ok(())
}

fn write(
    area: &Area<'_>,
    text: &str,
    at: Pixel,
    (across, down): (HPos, VPos),
    color: RGBColor,
) -> Result<(), Box<dyn Error>> {
    let style = font(TEXT_SIZE, FontStyle::Normal).color(&color).pos(Pos::new(across, down));
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}

/// Of so many pixels: plotters divides by this number.
fn font(pixels: f64, weight: FontStyle) -> TextStyle<'static> {
    ("sans-serif", pixels * 1.24, weight).into_text_style(&SIZE)
}

/// Without blank lines, which would end the picture within Markdown, and blanks at ends of lines.
fn tidy(svg: &str) -> String {
    let lines = svg.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut text = String::new();
    for line in lines {
        text += line;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Scale};
    use super::*;

    fn chart(names: &[&str]) -> Chart {
        let series = names.iter().enumerate().map(|(place, name)| {
            let points = (1..=10).map(|power| {
                let connections = f64::from(1 << power);
                (connections, 1e5 * connections / (connections + 10.0 + 4.0 * place as f64))
            });
            Series { name: (*name).to_owned(), points: points.collect() }
        });
        Chart {
            name: "throughput",
            title: "Throughput <of> servers".to_owned(),
            x: Axis { label: "connections", scale: Scale::Logarithmic },
            y: Axis { label: "requests per second", scale: Scale::Linear },
            series: series.collect(),
        }
    }

    #[test]
    fn a_chart_is_one_picture_with_every_name_in_it() {
        let names = ["epoll-group", "limit", "easy-async:16:workers=64", "something & else"];
        let chart = chart(&names);
        let text = svg(&chart).unwrap();
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"), "{text}");
        assert!(!text.contains("\n\n"));
        for name in ["epoll-group", "something &amp; else", "Throughput &lt;of&gt;", "1\u{a0}024"] {
            assert!(text.contains(name), "{name}");
        }
        // Every tag that is opened is closed.
        let count = |what: &str| text.matches(what).count();
        assert_eq!(count("<"), 2 * count("</") + count("/>"));
        assert_eq!(svg(&chart).unwrap(), text);
    }

    #[test]
    fn a_chart_without_points_says_so() {
        let mut chart = chart(&["limit"]);
        chart.series[0].points = vec![(0.0, 1.0)];
        assert!(svg(&chart).unwrap_err().to_string().contains("throughput"));
    }

    #[test]
    fn names_keep_their_distance() {
        assert_eq!(spaced(&[10, 12, 100], 18, 400), [10, 28, 100]);
        assert_eq!(spaced(&[390, 395, 399], 18, 400), [364, 382, 400]);
        assert!(spaced(&[], 18, 400).is_empty());
    }
}
