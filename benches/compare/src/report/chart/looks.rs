//! A colour and a marker for each server, the same in all charts.

use plotters::style::RGBColor;

use super::super::Series;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Look {
    pub(super) color: RGBColor,
    pub(super) marker: Marker,
    pub(super) width: u32,
    /// The subject of the comparison.
    pub(super) is_ours: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Disc,
    Square,
    Diamond,
    Triangle,
    Cross,
    /// Hollow, and so is a frame.
    Ring,
    Frame,
}

use Marker::{Cross, Diamond, Disc, Frame, Ring, Square, Triangle};

const OURS: [&str; 2] = ["epoll-group", "select1"];

/// All dark enough to be read on white. Kin have kindred colours.
const SERVERS: [(&str, u32, Marker); 17] = [
    ("epoll-group", 0xd0_10_10, Disc),
    ("select1", 0xd0_10_10, Disc),
    ("limit", 0x22_22_22, Square),
    ("mio", 0x77_77_77, Frame),
    ("easy-sync", 0x1f_77_b4, Triangle),
    ("easy-async", 0x0a_9b_b5, Diamond),
    ("easy-async:16:workers=64", 0x0a_5a_78, Cross),
    ("uv", 0x2c_8c_2c, Ring),
    ("percona", 0xa8_7b_00, Square),
    ("grpc-cq", 0x7b_3f_b0, Triangle),
    ("grpc-cq-repaired", 0xa8_6f_d0, Ring),
    ("thread-per-connection", 0x8c_56_4b, Cross),
    ("jdbc", 0x8c_56_4b, Cross),
    ("thread-per-session", 0xc8_4a_9a, Diamond),
    ("old", 0xc8_4a_9a, Diamond),
    ("tokio", 0xe0_70_00, Frame),
    ("model", 0x77_77_77, Ring),
];

/// For those that have no colour of their own, in this order.
const OTHERS: [(u32, Marker); 8] = [
    (0x1f_77_b4, Square),
    (0x2c_8c_2c, Triangle),
    (0x7b_3f_b0, Diamond),
    (0xe0_70_00, Ring),
    (0x8c_56_4b, Frame),
    (0x0a_5a_78, Cross),
    (0xa8_7b_00, Disc),
    (0x77_77_77, Square),
];

/// One for each of them.
pub(super) fn of(series: &[Series]) -> Vec<Look> {
    let mut others = OTHERS.iter().cycle();
    let mut looks: Vec<Look> = Vec::new();
    for series in series {
        let own = of_server(&series.name).filter(|look| !looks.contains(look));
        looks.push(own.unwrap_or_else(|| {
            let (color, marker) = *others.next().unwrap_or(&OTHERS[0]);
            look(color, marker, false)
        }));
    }
    looks
}

/// By its whole name, or by what stands before its settings.
fn of_server(name: &str) -> Option<Look> {
    let kind = name.split([':', '@', ' ', ',']).next().unwrap_or_default();
    let named = |wanted: &str| SERVERS.iter().find(|(known, ..)| *known == wanted);
    let (known, color, marker) = named(name).or_else(|| named(kind))?;
    Some(look(*color, *marker, OURS.contains(known)))
}

fn look(color: u32, marker: Marker, is_ours: bool) -> Look {
    let [_, red, green, blue] = color.to_be_bytes();
    let width = if is_ours { 4 } else { 2 };
    Look { color: RGBColor(red, green, blue), marker, width, is_ours }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str) -> Series {
        Series { name: name.to_owned(), points: Vec::new() }
    }

    #[test]
    fn a_server_looks_the_same_beside_any_others() {
        let alone = of(&[series("tokio")]);
        let beside = of(&[series("something"), series("epoll-group"), series("tokio")]);
        assert_eq!(alone[0], beside[2]);
        assert_eq!(beside.iter().filter(|look| look.is_ours).count(), 1);
        assert_eq!(of(&[series("epoll-group@/old/one")]), of(&[series("epoll-group")]));
    }

    #[test]
    fn no_two_lines_look_the_same() {
        let looks = of(&["limit", "limit:2", "limit, twin", "a", "b"].map(series));
        for (place, look) in looks.iter().enumerate() {
            assert!(!looks[..place].contains(look), "{place}");
        }
    }
}
