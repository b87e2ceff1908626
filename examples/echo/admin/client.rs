//! The client's end of the admin protocol.

use std::error::Error;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::super::load::Target;

/// A connection to an admin listener: one question, one answer.
pub(crate) struct Client {
    reader: BufReader<Box<dyn Read>>,
    writer: Box<dyn Write>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum AdminError {
    Connect(Target, io::Error),
    Talk(io::Error),
    /// The server refused a command.
    Refused(String),
    /// It answers, but not as an admin listener does.
    Nonsense(String),
}

/// An answer that takes longer is none: admin work never waits for other work.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_ANSWER: u64 = 1 << 20;

impl Client {
    pub(crate) fn connect(target: &Target) -> Result<Self, AdminError> {
        Self::open(target).map_err(|error| AdminError::Connect(target.clone(), error))
    }

    fn open(target: &Target) -> io::Result<Self> {
        let (reader, writer): (Box<dyn Read>, Box<dyn Write>) = match target {
            Target::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, PATIENCE)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                (Box::new(stream.try_clone()?), Box::new(stream))
            }
            Target::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                (Box::new(stream.try_clone()?), Box::new(stream))
            }
        };
        Ok(Self { reader: BufReader::new(reader), writer })
    }

    /// The lines of the answer.
    pub(crate) fn ask(&mut self, command: &str) -> Result<String, AdminError> {
        self.writer.write_all(format!("{command}\n").as_bytes()).map_err(AdminError::Talk)?;
        let mut answer = String::new();
        let mut limited = (&mut self.reader).take(LONGEST_ANSWER);
        loop {
            let start = answer.len();
            limited.read_line(&mut answer).map_err(AdminError::Talk)?;
            match &answer[start..] {
                "\n" => break,
                line if line.ends_with('\n') => {}
                _ if limited.limit() == 0 => {
                    let text = format!("its answer is longer than {LONGEST_ANSWER} bytes");
                    return Err(AdminError::Nonsense(text));
                }
                _ => return Err(AdminError::Talk(io::ErrorKind::UnexpectedEof.into())),
            }
        }
        answer.pop();
        match answer.strip_prefix("error: ") {
            Some(error) => Err(AdminError::Refused(error.trim_end().to_owned())),
            None => Ok(answer),
        }
    }
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(target, error) => write!(f, "--connect {target}: {error}"),
            Self::Talk(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let seconds = PATIENCE.as_secs();
                write!(f, "no answer within {seconds} s: is that the address after `admin on`?")
            }
            Self::Talk(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                f.write_str("the server has closed the connection")
            }
            Self::Talk(error) => write!(f, "the connection broke: {error}"),
            Self::Refused(error) => write!(f, "the server refused: {error}"),
            Self::Nonsense(what) => write!(f, "this is no admin listener of echo: {what}"),
        }
    }
}

impl Error for AdminError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Connect(_, error) | Self::Talk(error) => Some(error),
            Self::Refused(_) | Self::Nonsense(_) => None,
        }
    }
}
