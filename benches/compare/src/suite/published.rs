//! The published measurements of the architecture, and the same loads here.

use std::error::Error;
use std::iter;
use std::path::Path;

use lab::ratio::Spread;
use lab::sessions::Question;
use lab::table::markdown;
use serde::Deserialize;
use serde_json::json;

use super::{Suite, select1};
use crate::charts::{self, FEWER_CORES, HERE, Line, MORE_CORES, Panel};
use crate::experiment::{Experiment, Lane, Plan};
use crate::measured::Measured;
use crate::report::Section;
use crate::server::{Server, SqlServer};
use crate::table::{self, CPU, P99, THROUGHPUT, or_dash};
use crate::workload::{Frames, Workload};

pub const SUITE: Suite = Suite {
    name: "published",
    question: "How do the architectures compare here, and how did they where they were published?",
    run,
};

/// One published measurement.
struct Table {
    title: &'static str,
    /// Differences between the published load and the one here.
    text: &'static str,
    /// Unit of `rows`.
    unit: &'static str,
    rows: &'static [usize],
    /// Columns. All are compared with the first.
    designs: &'static [Design],
}

/// One architecture: a column of a published table.
struct Design {
    name: &'static str,
    lane: fn(usize) -> (Server, Workload),
    /// Published requests per second of each row, for each of [`MACHINES`]. Shorter than the rows
    /// if the largest rows were not published.
    published: [&'static [u32]; 2],
}

/// Machines that were published.
const MACHINES: [&str; 2] = ["64 cores", "104 cores"];
/// Rows of `sbtest1`.
const ROWS: u32 = 100_000;

const ECHO: Table = Table {
    title: "Echo",
    text: "One request of 64 bytes in flight on each connection. The publication names no size of a request and \
           no latencies. libeasy has the published numbers of threads.",
    unit: "connections",
    rows: &[2, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
    designs: &[
        Design {
            name: "epoll-group",
            lane: |connections| frames("epoll-group", connections),
            published: [
                &[
                    55_414, 107_255, 203_521, 392_132, 703_287, 1_175_623, 1_837_833, 2_649_329,
                    3_291_273, 3_612_265,
                ],
                &[],
            ],
        },
        Design {
            name: "libeasy sync 64",
            lane: |connections| frames("easy-sync:64", connections),
            published: [
                &[
                    52_957, 106_999, 208_922, 390_192, 715_153, 1_221_338, 1_844_174, 2_556_187,
                    3_182_367, 3_415_289,
                ],
                &[],
            ],
        },
        Design {
            name: "libeasy async 16 + 64",
            lane: |connections| frames("easy-async:16:workers=64", connections),
            published: [
                &[
                    37_486, 73_971, 145_597, 274_835, 480_920, 799_120, 1_047_940, 1_345_222,
                    1_397_924, 1_360_114,
                ],
                &[],
            ],
        },
        Design {
            name: "libeasy async 64 + 64",
            lane: |connections| frames("easy-async:64:workers=64", connections),
            published: [
                &[
                    37_564, 74_943, 146_341, 276_867, 481_256, 757_774, 1_157_251, 1_550_693,
                    1_342_324, 1_440_108,
                ],
                &[],
            ],
        },
    ],
};

const SELECT_ONE: Table = Table {
    title: "select 1",
    text: "All servers here speak one protocol before one SQLite. The published columns are whole databases, and \
           JDBC speaks MySQL's protocol. *New* and *old* share 16 connections here. *New, a connection each* was \
           not published: it compares with JDBC like with like. Up to 16 sessions the two are the same load.",
    unit: "sessions",
    rows: &[2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096],
    designs: &[
        Design {
            name: "new",
            lane: |sessions| select_one(SqlServer::NewSqlite, select1::CONNECTIONS, sessions),
            published: [
                &[
                    29_986, 66_999, 126_952, 232_871, 423_825, 733_778, 1_150_646, 1_473_572,
                    1_555_356, 1_514_292, 1_455_883, 1_200_290,
                ],
                &[
                    36_453, 79_440, 156_557, 298_600, 538_148, 917_314, 1_348_940, 1_685_461,
                    1_941_278, 2_084_962, 2_008_664, 1_820_561,
                ],
            ],
        },
        Design {
            name: "new, a connection each",
            lane: |sessions| select_one(SqlServer::NewSqlite, sessions, sessions),
            published: [&[], &[]],
        },
        Design {
            name: "old",
            lane: |sessions| select_one(SqlServer::OldSqlite, select1::CONNECTIONS, sessions),
            published: [
                &[
                    26_994, 59_082, 115_060, 217_390, 366_214, 588_699, 821_294, 966_579, 843_260,
                    825_537,
                ],
                &[
                    33_712, 67_205, 137_137, 264_379, 506_158, 854_530, 1_195_629, 1_554_815,
                    1_470_167, 916_179,
                ],
            ],
        },
        Design {
            name: "JDBC",
            lane: |sessions| select_one(SqlServer::JdbcSqlite, sessions, sessions),
            published: [
                &[
                    29_719, 63_485, 126_721, 242_324, 448_065, 753_735, 1_038_840, 1_182_257,
                    1_177_471, 1_147_890,
                ],
                &[
                    36_908, 80_341, 159_827, 299_065, 582_958, 987_595, 1_383_831, 1_622_597,
                    1_799_647, 1_815_061, 1_673_777,
                ],
            ],
        },
    ],
};

const POINT_SELECT: Table = Table {
    title: "Point select",
    text: "One row of 100 000 by its id, another id each time. SQL goes to SQLite as it is. Plans go to the data \
           node `select1`, which turns them into statements of SQLite; the published server gave them to its \
           storage engine. *Old* was not published.",
    unit: "sessions",
    rows: &[2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096],
    designs: &[
        Design {
            name: "new, SQL",
            lane: |sessions| {
                point(SqlServer::NewSqlite, select1::CONNECTIONS, sessions, Question::Text)
            },
            published: [
                &[
                    17_772, 37_123, 73_274, 137_330, 239_416, 407_637, 570_638, 628_808, 610_362,
                    623_204, 597_369, 527_704,
                ],
                &[
                    25_454, 54_074, 106_511, 196_580, 356_067, 604_598, 939_035, 1_163_552,
                    1_220_010, 1_187_091, 1_102_569, 987_189,
                ],
            ],
        },
        Design {
            name: "new, plan",
            lane: |sessions| {
                point(SqlServer::Select1, select1::CONNECTIONS, sessions, Question::Plan)
            },
            published: [
                &[
                    23_810, 47_754, 97_432, 176_151, 311_442, 526_345, 720_128, 843_517, 854_824,
                    843_500, 835_597, 771_389,
                ],
                &[
                    32_104, 62_057, 127_510, 245_143, 415_064, 721_448, 1_052_270, 1_281_496,
                    1_340_563, 1_320_433, 1_241_896, 1_131_214,
                ],
            ],
        },
        Design {
            name: "old, SQL",
            lane: |sessions| {
                point(SqlServer::OldSqlite, select1::CONNECTIONS, sessions, Question::Text)
            },
            published: [&[], &[]],
        },
        Design {
            name: "JDBC, SQL",
            lane: |sessions| point(SqlServer::JdbcSqlite, sessions, sessions, Question::Text),
            published: [
                &[
                    16_578, 36_202, 71_761, 137_715, 254_749, 413_138, 502_932, 539_180, 534_333,
                    510_401,
                ],
                &[
                    25_471, 54_392, 106_511, 195_315, 367_031, 640_736, 919_598, 1_084_269,
                    1_100_764, 1_040_284,
                ],
            ],
        },
    ],
};

const TABLES: [Table; 3] = [ECHO, SELECT_ONE, POINT_SELECT];

/// Charts: the table, a design, the design that it is divided by, and the ticks of the ratio.
const CHARTS: [(&Table, usize, usize, &[f64]); 8] = [
    (&ECHO, 1, 0, &[0.2, 0.3, 0.5, 0.7, 1.0, 1.4]),
    (&ECHO, 2, 0, &[0.2, 0.3, 0.5, 0.7, 1.0, 1.4]),
    (&ECHO, 3, 0, &[0.2, 0.3, 0.5, 0.7, 1.0, 1.4]),
    (&SELECT_ONE, 2, 0, &[0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0]),
    (&SELECT_ONE, 3, 0, &[0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0]),
    (&SELECT_ONE, 3, 1, &[0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0]),
    (&POINT_SELECT, 1, 0, &[0.8, 1.0, 1.2, 1.5, 1.8]),
    (&POINT_SELECT, 3, 0, &[0.1, 0.2, 0.5, 1.0, 2.0, 3.0]),
];

const TEXT: &str = "\
XRPC 2.0 of PolarDB-X was published with three measurements, on servers of 64 and 104 cores. Here server and \
load share the CPUs of one small machine, so requests per second do not compare: ratios between designs do, \
and the shape over the rows. *Of its peak* is throughput divided by that of the design's best row.";

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    let plan = Plan { counts_syscalls: false, ..*plan };
    let (mut all, mut raw) = (vec![TEXT.to_owned()], Vec::new());
    for table in &TABLES {
        let mut found = Vec::new();
        for (place, &row) in table.rows.iter().enumerate() {
            if !plan.quick || [16, 256].contains(&row) {
                found.push((place, table.experiment(row).run(&plan)?));
            }
        }
        all.push(format!("### {}\n\n{}", table.title, table.text));
        all.extend([
            table.side_by_side(&found),
            table.of_peak(&found),
            Section::other_work(found.iter().map(|(_, measured)| measured.other_cpus())),
        ]);
        raw.extend(found.into_iter().map(|(_, measured)| measured));
    }
    Ok(Section::new("Published measurements", all, json!({ "experiments": raw })))
}

/// Part of `published.json` that the charts are drawn from.
#[derive(Deserialize)]
struct Record {
    raw: Experiments,
}

#[derive(Deserialize)]
struct Experiments {
    experiments: Vec<Measured>,
}

/// The charts of a record.
///
/// # Errors
/// The record has no `published.json`, or it lacks a row.
pub fn panels(record: &Path) -> Result<Vec<Panel>, String> {
    let Record { raw } = charts::read(record, "published.json")?;
    let panels = CHARTS.iter();
    let panels = panels.map(|&(table, design, base, y_ticks)| {
        let name = |lane: usize| table.designs[lane].name;
        let every_other: Vec<_> = table.rows.iter().skip(1).step_by(2).copied().collect();
        Ok(Panel {
            title: format!("{}: {}", table.title, name(design)),
            x_title: table.unit,
            y_title: format!("requests/s, ratio to {}", name(base)),
            x_ticks: [&table.rows[..1], &every_other].concat(),
            y_ticks,
            lines: table.lines(design, base, &raw.experiments)?,
        })
    });
    panels.collect()
}

impl Table {
    fn experiment(&self, row: usize) -> Experiment {
        let lanes = self.designs.iter().map(|design| {
            let (server, workload) = (design.lane)(row);
            Lane { name: design.name.to_owned(), server, workload }
        });
        Experiment::new(self.name(row), lanes)
    }

    fn name(&self, row: usize) -> String {
        format!("{}, {row} {}", self.title, self.unit)
    }

    /// Throughput of a design divided by that of `base`: on each published machine, and here.
    fn lines(&self, design: usize, base: usize, here: &[Measured]) -> Result<Vec<Line>, String> {
        let [design_published, base_published] =
            [design, base].map(|lane| self.designs[lane].published);
        let published = [FEWER_CORES, MORE_CORES].into_iter().enumerate().map(|(machine, look)| {
            let cells = design_published[machine].iter().zip(base_published[machine]);
            let ratios = cells
                .filter_map(|(&cell, &base)| Spread::of(vec![f64::from(cell) / f64::from(base)]));
            Line { look, points: self.rows.iter().copied().zip(ratios).collect() }
        });
        let point = |&row: &usize| {
            let name = self.name(row);
            let measured = here.iter().find(|measured| measured.name == name);
            let ratio = measured.and_then(|measured| measured.ratio(design, base, THROUGHPUT));
            Ok((row, ratio.ok_or_else(|| format!("published.json has no {name}"))?))
        };
        let points = self.rows.iter().map(point).collect::<Result<_, String>>()?;
        let lines = published.filter(|line| !line.points.is_empty());
        Ok(lines.chain([Line { look: HERE, points }]).collect())
    }

    /// Each published cell beside the same one here. `found` has the place of its row.
    fn side_by_side(&self, found: &[(usize, Measured)]) -> String {
        let mut headings = vec![self.unit, "design"];
        headings.extend(MACHINES.iter().flat_map(|machine| [machine, "to the first"]));
        headings.extend(["here", "to the first", "p99", "CPU/request", "CPU, to the first"]);
        let mut table = markdown(&headings);
        for (place, measured) in found {
            for (lane, design) in self.designs.iter().enumerate() {
                let mut row =
                    vec![Some(self.rows[*place].to_string()), Some(design.name.to_owned())];
                for (published, base) in design.published.iter().zip(self.designs[0].published) {
                    let cell = published.get(*place);
                    let ratio = cell.zip(base.get(*place)).filter(|_| lane > 0);
                    row.push(cell.map(u32::to_string));
                    row.push(
                        ratio.map(|(&cell, &base)| {
                            format!("{:.2}", f64::from(cell) / f64::from(base))
                        }),
                    );
                }
                row.extend([
                    table::number(measured, lane, THROUGHPUT),
                    table::ratio(measured, lane, THROUGHPUT),
                    table::duration(measured, lane, P99),
                    table::duration(measured, lane, CPU),
                    table::ratio(measured, lane, CPU),
                ]);
                table.add_row(row.into_iter().map(or_dash));
            }
        }
        table.to_string()
    }

    /// Throughput of each design, divided by that of its best row.
    fn of_peak(&self, found: &[(usize, Measured)]) -> String {
        let mut columns: Vec<(String, Vec<Option<f64>>)> = Vec::new();
        for (lane, design) in self.designs.iter().enumerate() {
            for (machine, cells) in MACHINES.iter().zip(design.published) {
                let cell = |(place, _): &(usize, _)| cells.get(*place).copied().map(f64::from);
                columns.push((
                    format!("{}, {machine}", design.name),
                    found.iter().map(cell).collect(),
                ));
            }
            let here = found
                .iter()
                .map(|(_, measured)| measured.values(lane, THROUGHPUT).map(|spread| spread.median));
            columns.push((format!("{}, here", design.name), here.collect()));
        }
        columns.retain(|(_, cells)| cells.iter().any(Option::is_some));
        let headings = columns.iter().map(|(heading, _)| &**heading);
        let mut table = markdown(&iter::once(self.unit).chain(headings).collect::<Vec<_>>());
        for (index, (place, _)) in found.iter().enumerate() {
            let cells = columns.iter().map(|(_, cells)| {
                let peak = cells.iter().flatten().copied().fold(0.0, f64::max);
                or_dash(cells[index].map(|cell| format!("{:.2}", cell / peak)))
            });
            table.add_row(iter::once(self.rows[*place].to_string()).chain(cells));
        }
        format!("Of its peak:\n\n{table}")
    }
}

fn frames(server: &str, connections: usize) -> (Server, Workload) {
    let lane = Lane::echo(server, Workload::frames(Frames::plain(connections)));
    (lane.server, lane.workload)
}

fn select_one(server: SqlServer, connections: usize, sessions: usize) -> (Server, Workload) {
    (Server::Sql(server, select1::ROWS), select1::asking(connections, sessions))
}

fn point(
    server: SqlServer,
    connections: usize,
    sessions: usize,
    question: Question,
) -> (Server, Workload) {
    (Server::Sql(server, ROWS), super::sessions(connections, sessions, question, ROWS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_published_column_is_longer_than_its_table() {
        for table in TABLES {
            for design in table.designs {
                let longest = design.published.map(<[u32]>::len).into_iter().max();
                assert!(longest <= Some(table.rows.len()), "{}", design.name);
            }
        }
    }
}
