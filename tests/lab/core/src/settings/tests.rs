use super::*;

const SAMPLE: &str = include_str!("../../../../../examples/echo/echo.toml");

fn from_toml(text: &str) -> Result<Settings, SettingsError> {
    let mut settings = Settings::default();
    settings.read_toml(Path::new("a.toml"), text).map(|()| settings)
}

fn gather(variables: &[(&str, &str)], options: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let variables: Vec<(OsString, OsString)> =
        variables.iter().map(|&(name, value)| (name.into(), value.into())).collect();
    let options: Vec<_> = options
        .iter()
        .map(|&(name, value)| Setting { option: "--set", name: name.into(), value: value.into() })
        .collect();
    Settings::gather(None, variables.into_iter(), &options)
}

fn error(result: Result<Settings, SettingsError>) -> String {
    result.expect_err("it is wrong").to_string()
}

#[test]
fn the_sample_is_valid_and_its_defaults_are_the_defaults() {
    let settings = from_toml(SAMPLE).expect("it is valid");
    assert_eq!(settings.config.validate(), Ok(()));
    // Commented lines of the sample show the defaults.
    for line in SAMPLE.lines().filter_map(|line| line.strip_prefix("#")) {
        let Some((name, rest)) = line.split_once(" = ") else { continue };
        let value = rest.split('#').next().expect("there is a first").trim().trim_matches('"');
        let config = Config::default().set(name, value).expect(line);
        assert_eq!(config, Config::default(), "{line}");
    }
}

#[test]
fn later_sources_override_earlier_ones() {
    let variables = [("EPOLL_GROUP_MAX_THREADS", "100"), ("EPOLL_GROUP_EPOLL_GROUPS", "2")];
    let settings = gather(&variables, &[("max_threads", "200")]).expect("valid");
    let value = |name| settings.config.get(name).expect("known");
    assert_eq!(value("max_threads"), "200");
    assert_eq!(value("epoll_groups"), "2");

    let mut table = Vec::new();
    settings.print(&mut table).expect("memory takes everything");
    let table = String::from_utf8(table).expect("UTF-8");
    let row = |name: &str| {
        let row = table.lines().find(|line| line.split(' ').next() == Some(name));
        row.unwrap_or_else(|| panic!("{name} is missing")).split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(row("max_threads"), ["max_threads", "200", "1024", "2..=32768", "live", "--set"]);
    assert!(row("epoll_groups").ends_with(&["start", "only", "EPOLL_GROUP_EPOLL_GROUPS"]));
    assert!(row("accept_budget").ends_with(&["live", "default"]));
    assert_eq!(table.lines().count(), Config::FIELDS.len() + 1);
}

#[test]
fn values_of_a_file_are_those_of_set() {
    let settings = from_toml(
        "max_allowed_packet = '16MiB'\nepoll_groups = 0x10\ntcp_keep_alive = 60\n\
         enable_perf_hist = true\nmax_connections = 1_000\n",
    );
    let config = settings.expect("valid").config;
    for (name, value) in [
        ("max_allowed_packet", "16777216"),
        ("epoll_groups", "16"),
        ("tcp_keep_alive", "60s"),
        ("enable_perf_hist", "true"),
        ("max_connections", "1000"),
    ] {
        assert_eq!(config.get(name).as_deref(), Some(value), "{name}");
    }
}

#[test]
fn errors_say_where_what_and_what_is_allowed() {
    for (text, expected) in [
        ("\n\nmax_threads = 1\n", "a.toml:3: max_threads 1 is outside 2..=32768"),
        ("max_threads = -1", "a.toml:1: max_threads -1 is outside 2..=32768"),
        ("max_thread = 9", "a.toml:1: unknown tunable \"max_thread\", did you mean max_threads?"),
        ("enable_tasker = 'maybe'", "a.toml:1: enable_tasker \"maybe\" is not true or false"),
        (
            "epoll_groups = 1\n[net]\nmax_threads = 9",
            "a.toml:2: \"net\" is a TOML table; a tunable is a number, true, false, or a string \
             such as \"10s\" or \"64KiB\"",
        ),
    ] {
        assert_eq!(error(from_toml(text)), expected, "{text:?}");
    }
    let text = error(from_toml("epoll_groups = 1\nmax_threads =\n"));
    assert!(text.starts_with("a.toml:2: "), "{text}");

    assert_eq!(
        error(gather(&[("EPOLL_GROUP_MAX_THRADS", "9")], &[])),
        "EPOLL_GROUP_MAX_THRADS: unknown tunable \"max_thrads\", did you mean max_threads?"
    );
    assert_eq!(
        error(gather(&[], &[("write_low_watermark_bytes", "1GiB")])),
        "--set: write_low_watermark_bytes 1073741824 is outside 0..=1048576 \
         (write_high_watermark_bytes)"
    );
    let missing = Settings::gather(Some(Path::new("/no/such")), std::iter::empty(), &[]);
    assert!(error(missing).starts_with("--config /no/such: No such file"));
}
