//! Conversations of the existing client with a server, as they were recorded.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use epoll_group::codec::frame::{Dialect, Frame};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::ClientMessage;
use serde_json::Value;

use super::exchange::Exchange;
use super::legal::Illegal;

/// Event of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The client sent a frame.
    Client,
    /// The server sent a frame.
    Server,
    /// The connection ended.
    Close,
}

/// One line of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub connection: u64,
    pub act: Act,
    pub bytes: Vec<u8>,
}

impl Line {
    /// Its frame; there is none at the end of a connection.
    pub fn frame(&self) -> Frame<'_> {
        let parsed = Frame::parse(&self.bytes, Dialect::Legacy, &Limits::default());
        parsed.expect("a header").expect("a whole frame").0
    }

    /// Decodes the frame that the client sent.
    pub fn request(&self) -> ClientMessage {
        self.frame().client_message(&Limits::default()).expect("recorded frames are right")
    }
}

/// The lines of all connections in the order in which the server saw or sent them.
#[derive(Clone)]
pub struct Conversation {
    pub name: String,
    pub lines: Vec<Line>,
}

impl Conversation {
    /// The conversation of that name.
    pub fn named(name: &str) -> Self {
        let path = folder().join(format!("{name}.jsonl"));
        let text = std::fs::read_to_string(&path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let lines = text.lines().map(|text| line(text).unwrap_or_else(|| panic!("{name}: {text}")));
        Self { name: name.into(), lines: lines.collect() }
    }
}

impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Returns the exchange on each connection, or the first frame that a client would not accept.
pub fn judge(lines: &[Line]) -> Result<BTreeMap<u64, Exchange>, Illegal> {
    let mut connections = BTreeMap::<u64, Exchange>::new();
    for line in lines {
        let exchange = connections.entry(line.connection).or_default();
        match line.act {
            Act::Client => {
                exchange.sent(line.frame().session(), &line.request());
            }
            Act::Server => {
                exchange.received(&line.frame())?;
            }
            Act::Close => {}
        }
    }
    Ok(connections)
}

/// All recorded conversations, by name.
pub fn conversations() -> Vec<Conversation> {
    let mut names: Vec<_> = std::fs::read_dir(folder())
        .expect("the folder of the conversations is there")
        .map(|file| file.expect("its entries can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "there are conversations");
    names.iter().map(|name| Conversation::named(name)).collect()
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/sessions"))
}

fn line(text: &str) -> Option<Line> {
    let json: Value = serde_json::from_str(text).ok()?;
    let act = match json["direction"].as_str()? {
        "c2s" => Act::Client,
        "s2c" => Act::Server,
        "close" => Act::Close,
        _ => return None,
    };
    let digits = json["frame_hex"].as_str().unwrap_or_default().as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes = digits.map(byte).collect::<Option<_>>()?;
    Some(Line { connection: json["conn"].as_u64()?, act, bytes })
}
