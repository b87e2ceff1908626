//! The admin listener: one command on a line, an answer that ends with an empty line.
//!
//! It is served as `Class::Admin`, also when every other thread waits. A client that can connect may
//! change tunables, so give it a Unix socket, or a port that only operators reach.

use std::error::Error;
use std::fmt::{Display, Write as _};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::str;
use std::time::{Duration, Instant};

use epoll_group::net::{Close, Connection, Input, Protocol};
use epoll_group::stats::Stage;
use epoll_group::{Config, Handle, Runtime};
use lab::address::Address;
use lab::args::misuse;
use socket2::Socket;

use super::protocol::Echo;

/// The listener. A clone serves the same runtime.
#[derive(Clone)]
pub(crate) struct Admin {
    handle: Handle,
    echo: Echo,
    started: Instant,
}

/// A connection to an admin listener.
pub(crate) struct Client(BufReader<Socket>);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Admin listener to ask
    #[arg(long, value_name = "ADDR")]
    connect: Address,
    /// Command, such as: set max_threads 256
    #[arg(required = true)]
    command: Vec<String>,
}

/// Longest command, in bytes.
const LONGEST: usize = 1024;
/// Unread answers at which a client is disconnected, in bytes.
const MOST_UNREAD: usize = 1 << 20;
const LONGEST_ANSWER: u64 = 1 << 20;
/// Longest time for an answer. Admin work never waits for other work.
const PATIENCE: Duration = Duration::from_secs(5);

const HELP: &str = "\
stats            everything that is counted, each in a line of a name and a value
text             the same for people, with the histograms
buckets          the histograms: stage, end of the bucket in nanoseconds, samples in it
config           every tunable: name, value, range, and whether it is live
set NAME VALUE   changes a tunable that is live
reset            empties the histograms
help             this
quit             ends the connection
";

/// Prints what an admin listener answers.
pub(crate) fn ask(args: &Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let command = args.command.join(" ");
    if command.trim().is_empty() || command.contains('\n') {
        return Err(misuse(format_args!(
            "{command:?} is not one line, such as: set max_threads 256"
        )));
    }
    let answer = Client::connect(&args.connect)?.ask(&command)?;
    Ok(out.write_all(answer.as_bytes())?)
}

impl Admin {
    pub(crate) fn new(runtime: &Runtime, echo: Echo) -> Self {
        Self { handle: runtime.handle(), echo, started: Instant::now() }
    }

    /// Returns the lines of the answer, without the empty one; or what is wrong with the command.
    pub(crate) fn answer(&self, line: &str) -> Result<String, String> {
        let line = line.trim();
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match (command, rest.trim_start()) {
            ("stats", "") => Ok(self.stats()),
            ("text", "") => {
                // An empty line would end the answer.
                let text = self.handle.stats().to_string();
                let lines = text.lines().filter(|line| !line.is_empty());
                Ok(lines.flat_map(|line| [line, "\n"]).collect())
            }
            ("buckets", "") => Ok(self.buckets()),
            ("config", "") => Ok(self.tunables()),
            ("set", pair) => {
                let (name, value) = pair.split_once([' ', '\t', '=']).unwrap_or((pair, ""));
                match value.trim_start_matches([' ', '\t', '=']) {
                    "" => Err("set needs a name and a value, such as: set max_threads 256".into()),
                    value => self.set(name, value),
                }
            }
            ("reset", "") => {
                self.handle.reset_histograms();
                Ok("the histograms are empty\n".to_owned())
            }
            ("help", "") => Ok(HELP.to_owned()),
            ("stats" | "text" | "buckets" | "config" | "reset" | "help", rest) => {
                Err(format!("{command} takes no argument, not {rest:?}"))
            }
            _ => Err(format!("unknown command {command:?}; help lists them")),
        }
    }

    fn stats(&self) -> String {
        let mut lines = self.handle.stats().to_lines();
        let uptime = self.started.elapsed().as_secs_f64();
        put(&mut lines, format_args!("echo_requests {}", self.echo.answered()));
        put(&mut lines, format_args!("echo_uptime_seconds {uptime:.9}"));
        lines
    }

    fn buckets(&self) -> String {
        let mut lines = String::new();
        let stats = self.handle.stats();
        for &stage in Stage::ALL {
            for (end, count) in stats.histogram(stage).iter().flat_map(|all| all.buckets()) {
                put(&mut lines, format_args!("{} {} {count}", stage.name(), end.as_nanos()));
            }
        }
        lines
    }

    fn tunables(&self) -> String {
        let config = self.handle.config();
        let mut lines = String::new();
        for field in Config::FIELDS {
            let when = if field.live { "live" } else { "start only" };
            let (name, value, range) = (field.name, field.value_in(&config), field.range());
            put(&mut lines, format_args!("{name} {value}  # {range}, {when}"));
        }
        lines
    }

    fn set(&self, name: &str, value: &str) -> Result<String, String> {
        let mut refused = None;
        // `set` runs again if another tunable changes at the same time.
        let set = |config: Config| {
            config.clone().set(name, value).unwrap_or_else(|error| {
                refused = Some(error);
                config
            })
        };
        self.handle.reconfigure(set).map_err(|error| error.to_string())?;
        match refused {
            Some(error) => Err(error.to_string()),
            None => {
                let value = self.handle.config().get(name).unwrap_or_default();
                Ok(format!("{name} {value}\n"))
            }
        }
    }
}

impl Protocol for Admin {
    type State = ();

    fn opened(&self, _conn: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, _: &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        while let Some(end) = input.bytes().iter().position(|&byte| byte == b'\n') {
            if end > LONGEST {
                return Err(too_long(conn));
            }
            let line = input.take(end + 1);
            let Ok(line) = str::from_utf8(line) else {
                conn.send("error: this command is not UTF-8\n\n");
                continue;
            };
            match line.split_whitespace().next() {
                None => continue,
                Some("quit") => {
                    conn.close("quit");
                    return Ok(());
                }
                // A web page can make a browser send this; its next line could be a `set`.
                Some("POST" | "GET" | "Host:") => return Err("this is not HTTP".into()),
                Some(_) => {}
            }
            match self.answer(line) {
                Ok(lines) => conn.send(lines + "\n"),
                Err(error) => conn.send(format!("error: {error}\n\n")),
            };
            if conn.pending_bytes() > MOST_UNREAD {
                return Err("too many answers are left unread".into());
            }
        }
        if input.len() > LONGEST { Err(too_long(conn)) } else { Ok(()) }
    }
}

impl Client {
    pub(crate) fn connect(address: &Address) -> Result<Self, String> {
        let open = || {
            let socket = address.connect(PATIENCE)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.set_write_timeout(Some(PATIENCE))?;
            Ok(Self(BufReader::new(socket)))
        };
        open().map_err(|error: io::Error| format!("--connect {address}: {error}"))
    }

    /// Returns the lines of the answer.
    pub(crate) fn ask(&mut self, command: &str) -> Result<String, Box<dyn Error>> {
        let broken = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                let seconds = PATIENCE.as_secs();
                format!("no answer within {seconds} s: is that the address after `admin on`?")
            }
            _ => format!("the connection broke: {error}"),
        };
        let request = format!("{command}\n");
        self.0.get_mut().write_all(request.as_bytes()).map_err(broken)?;
        let mut answer = String::new();
        let mut limited = (&mut self.0).take(LONGEST_ANSWER);
        while answer != "\n" && !answer.ends_with("\n\n") {
            if limited.read_line(&mut answer).map_err(broken)? == 0 {
                let bytes = answer.len();
                return Err(
                    format!("the answer ends after {bytes} bytes, without an empty line").into()
                );
            }
        }
        answer.pop();
        match answer.strip_prefix("error: ") {
            Some(error) => Err(format!("the server refused: {}", error.trim_end()).into()),
            None => Ok(answer),
        }
    }
}

fn too_long(conn: &Connection) -> Close {
    conn.send(format!("error: a command is at most {LONGEST} bytes long\n\n"));
    "command too long".into()
}

fn put(lines: &mut String, line: impl Display) {
    writeln!(lines, "{line}").expect("a String takes everything");
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use epoll_group::Class;

    use super::*;

    fn runtime() -> Runtime {
        Runtime::builder()
            .config(Config::default().epoll_groups(1).epoll_threads_per_group(2))
            .start()
            .expect("it starts")
    }

    #[test]
    fn live_tunables_change_and_others_are_refused_by_name() {
        let runtime = runtime();
        let admin = Admin::new(&runtime, Echo::default());
        assert_eq!(admin.answer("set max_connections 100\r\n"), Ok("max_connections 100\n".into()));
        assert_eq!(
            admin.answer("set net_write_timeout = 5 s"),
            Ok("net_write_timeout 5s\n".into())
        );
        assert_eq!(runtime.config().get("max_connections").as_deref(), Some("100"));
        for (line, expected) in [
            ("set epoll_groups 2", "epoll_groups counts at the start only: it is 1, asked for 2"),
            ("set max_threads 0", "max_threads 0 is outside 2..=32768"),
            ("set max_thread 9", "unknown tunable \"max_thread\", did you mean max_threads?"),
            ("set max_threads", "set needs a name and a value, such as: set max_threads 256"),
            ("set", "set needs a name and a value, such as: set max_threads 256"),
            ("stats now", "stats takes no argument, not \"now\""),
            ("\u{1b}[2J", "unknown command \"\\u{1b}[2J\"; help lists them"),
        ] {
            assert_eq!(admin.answer(line), Err(expected.into()), "{line}");
        }
        let config = admin.answer("config").expect("it has no argument");
        assert!(config.contains("\nmax_connections 100  # 1..=16777216, live\n"), "{config}");
        assert_eq!(config.lines().count(), Config::FIELDS.len());
        assert!(admin.answer("stats").expect("as above").contains("\necho_requests 0\n"));
    }

    #[test]
    fn no_answer_has_an_empty_line_inside() {
        let runtime = runtime();
        let admin = Admin::new(&runtime, Echo::default());
        admin.answer("set enable_perf_hist on").expect("it is live");
        runtime.handle().spawn_wait(|| ()).expect("there is room");
        for command in ["stats", "text", "buckets", "config", "reset", "help"] {
            let answer = admin.answer(command).expect(command);
            assert!(!answer.contains("\n\n") && !answer.starts_with('\n'), "{command}: {answer}");
        }
    }

    #[test]
    fn bad_input_is_answered_and_bounded() {
        let runtime = runtime();
        let admin = runtime.handle().with_class(Class::Admin);
        let listener =
            admin.listen("127.0.0.1:0", Admin::new(&runtime, Echo::default())).expect("it listens");
        let ask = |bytes: &[u8]| {
            let address = listener.local_addr().to_string();
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.write_all(bytes).expect("it reads");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("it answers and closes");
            answer
        };
        let unknown = "error: unknown command \"dance\"; help lists them\n\n";
        assert_eq!(
            ask(b"dance\n\n\xff\nquit\n"),
            format!("{unknown}error: this command is not UTF-8\n\n")
        );
        let too_long = "error: a command is at most 1024 bytes long\n\n";
        assert_eq!(ask(&[b'a'; LONGEST + 1]), too_long);
        let mut long = vec![b'a'; LONGEST + 1];
        long.push(b'\n');
        assert_eq!(ask(&long), too_long);
        assert_eq!(ask(b"POST / HTTP/1.1\nset max_connections 1\n"), "");
        assert_eq!(runtime.config().get("max_connections").as_deref(), Some("65536"));
    }
}
