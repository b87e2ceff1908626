//! [`Spec`]: the name of a server, `KIND[:THREADS][:SETTING=VALUE …][@BINARY]`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A server that echoes frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub kind: Kind,
    /// Settings in the order given. `THREADS` alone is the setting `threads`.
    pub settings: Vec<(Setting, usize)>,
    /// Program that starts the server, if it is not this one. A second build of the program compares two
    /// versions of the library.
    pub binary: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Limit,
    Uv,
    EasySync,
    EasyAsync,
    Percona,
    GrpcCq,
    ThreadPerConnection,
    ThreadPerSession,
    Tokio,
    EpollGroup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    Threads,
    Workers,
    Groups,
    Events,
    Pollers,
    TasksPerPoll,
    ReadBudget,
    /// CPUs of a thread: 0 for all, 1 for one, 2 for those of its group.
    Bind,
    /// Number of the machine's first CPUs that it may use. Fits every kind.
    Cpus,
}

pub const KINDS: [(&str, Kind); 10] = [
    ("limit", Kind::Limit),
    ("uv", Kind::Uv),
    ("easy-sync", Kind::EasySync),
    ("easy-async", Kind::EasyAsync),
    ("percona", Kind::Percona),
    ("grpc-cq", Kind::GrpcCq),
    ("thread-per-connection", Kind::ThreadPerConnection),
    ("thread-per-session", Kind::ThreadPerSession),
    ("tokio", Kind::Tokio),
    ("epoll-group", Kind::EpollGroup),
];

const SETTINGS: [(&str, Setting); 9] = [
    ("threads", Setting::Threads),
    ("workers", Setting::Workers),
    ("groups", Setting::Groups),
    ("events", Setting::Events),
    ("pollers", Setting::Pollers),
    ("tasks-per-poll", Setting::TasksPerPoll),
    ("read-budget", Setting::ReadBudget),
    ("bind", Setting::Bind),
    ("cpus", Setting::Cpus),
];

impl Spec {
    /// A server with its defaults.
    pub fn plain(kind: Kind) -> Self {
        Self { kind, settings: Vec::new(), binary: None }
    }

    /// Value of a setting. The last one given counts.
    pub fn setting(&self, setting: Setting) -> Option<usize> {
        let mut given = self.settings.iter().rev();
        given.find(|(name, _)| *name == setting).map(|(_, value)| *value)
    }

    /// The same server, from the binary that parses it.
    pub fn without_binary(&self) -> Self {
        Self { binary: None, ..self.clone() }
    }
}

impl Setting {
    /// True if servers of this kind have the setting.
    fn fits(self, kind: Kind) -> bool {
        match kind {
            _ if self == Self::Cpus => true,
            Kind::ThreadPerConnection | Kind::ThreadPerSession => false,
            Kind::EasyAsync => matches!(self, Self::Threads | Self::Workers),
            Kind::Percona => self == Self::Groups,
            Kind::EpollGroup => self != Self::Workers,
            _ => self == Self::Threads,
        }
    }
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (server, binary) = match text.split_once('@') {
            Some((server, binary)) => (server, Some(PathBuf::from(binary))),
            None => (text, None),
        };
        let mut parts = server.split(':');
        let name = parts.next().unwrap_or_default();
        let kind = named(&KINDS, name).ok_or_else(|| {
            let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
            format!("server {name} is none of {}", names.join(", "))
        })?;
        let mut settings = Vec::new();
        for part in parts {
            let (setting, value) = part.split_once('=').unwrap_or(("threads", part));
            let known = named(&SETTINGS, setting).filter(|setting| setting.fits(kind));
            let known = known.ok_or_else(|| format!("{name} has no setting {setting}"))?;
            let value = value
                .parse()
                .map_err(|_| format!("{setting} {value} of {name} is not a number"))?;
            settings.push((known, value));
        }
        Ok(Self { kind, settings, binary })
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&KINDS, self.kind))?;
        for (setting, value) in &self.settings {
            match setting {
                Setting::Threads => write!(f, ":{value}")?,
                other => write!(f, ":{}={value}", name_of(&SETTINGS, *other))?,
            }
        }
        match &self.binary {
            Some(binary) => write!(f, "@{}", binary.display()),
            None => Ok(()),
        }
    }
}

fn named<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    let entry = table.iter().find(|(known, _)| *known == name);
    entry.map(|(_, value)| *value)
}

fn name_of<T: PartialEq>(table: &[(&'static str, T)], value: T) -> &'static str {
    let entry = table.iter().find(|(_, known)| *known == value);
    entry.map_or("", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_displayed_is_what_was_parsed() {
        for text in [
            "limit:2",
            "thread-per-connection:cpus=1",
            "epoll-group",
            "epoll-group:4:events=1:groups=2@/tmp/old/compare",
        ] {
            let spec: Spec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
        }
    }

    #[test]
    fn unknown_names_and_settings_are_named_in_the_error() {
        for text in ["seastar", "limit:events=1", "epoll-group:2x", "limit:"] {
            assert!(text.parse::<Spec>().is_err(), "{text}");
        }
    }
}
