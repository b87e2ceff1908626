//! Tests of every tunable: its setter, its range, and its access by name.

use std::time::Duration;

use super::table::{MILLISECOND as MS, SECOND};
use super::*;

fn text(config: &Config) -> String {
    config.validate().expect_err("this is out of range").to_string()
}

/// Sets one field, by the setter and by name. Values at both ends of the range are accepted. Values
/// one step beyond are refused, with field, value and range in the text. The step is 1 for a count
/// and 1 ns for a time.
macro_rules! ranges {
    ($($field:ident $low:expr, $high:expr, $step:expr, $range:literal;)+) => {
        const RANGES: &[&str] = &[$(stringify!($field)),+];

        $(
            #[test]
            fn $field() {
                let name = stringify!($field);
                let set = |value| Config::default().$field(value);
                let [low, high] = [$low, $high];
                for value in [low, high] {
                    let config = set(value);
                    assert_eq!(config.validate(), Ok(()));
                    let value = format!("{value:?}");
                    assert_eq!(config.get(name), Some(value.clone()));
                    assert_eq!(Config::default().set(name, &value), Ok(config));
                }
                let beyond = [low.checked_sub($step), high.checked_add($step)];
                for value in beyond.into_iter().flatten() {
                    let error = set(value).validate().expect_err("beyond the range");
                    assert_eq!(error.field, name);
                    let expected = format!("{name} {value:?} is outside {}", $range);
                    assert_eq!(error.to_string(), expected);
                    assert_eq!(Config::default().set(name, &format!("{value:?}")), Err(error));
                }
                assert_eq!(Field::named(name).expect("it has a name").range(), $range);
            }
        )+
    };
}

/// Sets and reads both values, by the setter and by name.
macro_rules! switches {
    ($($field:ident)+) => {
        const SWITCHES: &[&str] = &[$(stringify!($field)),+];

        $(
            #[test]
            fn $field() {
                let name = stringify!($field);
                for (on, words) in [(true, ["true", "ON", "1"]), (false, ["false", "Off", "0"])] {
                    let config = Config::default().$field(on);
                    assert_eq!(config.get(name).as_deref(), Some(words[0]));
                    for word in words {
                        assert_eq!(Config::default().set(name, word).as_ref(), Ok(&config));
                    }
                }
                let error = Config::default().set(name, "maybe").expect_err("neither");
                assert_eq!(error.to_string(), format!("{name} \"maybe\" is not true or false"));
            }
        )+
    };
}

const STEP: Duration = Duration::from_nanos(1);
const ZERO: Duration = Duration::ZERO;

ranges! {
    epoll_groups 0_usize, 128, 1, "0..=128";
    min_auto_epoll_groups 1_usize, 128, 1, "1..=128";
    epoll_extra_groups 0_usize, 32, 1, "0..=32";
    epoll_threads_per_group 1_usize, 128, 1, "1..=128";
    max_epoll_wait_total_threads 0_usize, 128, 1, "0..=128";
    epoll_events_per_thread 1_usize, 16, 1, "1..=16";
    epoll_work_queue_capacity 128_usize, 4096, 1, "128..=4096";
    tasks_per_poll 1_usize, 4096, 1, "1..=4096";
    dynamic_threads 0_usize, 16, 1, "0..=16";
    dynamic_threads_shrink_time 10 * MS, 600 * SECOND, STEP, "10ms..=600s";
    thread_scale_thresh 0_usize, 100, 1, "0..=100";
    thread_deadlock_check_interval MS, 10 * SECOND, STEP, "1ms..=10s";
    tasker_multiply 1_usize, 50, 1, "1..=50";
    tasker_extend_step 1_usize, 50, 1, "1..=50";
    max_threads 2_usize, 32_768, 1, "2..=32768";
    reserve_threads_per_group 0_usize, 16, 1, "0..=16";
    tcp_listen_queue 0_u32, 4096, 1, "0..=4096";
    tcp_keep_alive SECOND, 7200 * SECOND, STEP, "1s..=7200s";
    tcp_send_buf 2048_usize, 2_097_152, 1, "0 or 2048..=2097152";
    tcp_recv_buf 2048_usize, 2_097_152, 1, "0 or 2048..=2097152";
    tcp_notsent_lowat_bytes 0_u32, 1 << 30, 1, "0..=1073741824";
    tcp_fixed_dealing_buf 4096_usize, 65_536, 1, "4096..=65536";
    worker_read_buf_bytes 4096_usize, 1_048_576, 1, "4096..=1048576";
    max_allowed_packet 4096_usize, 1 << 30, 1, "4096..=1073741824";
    read_budget_bytes 4096_usize, 67_108_864, 1, "4096..=67108864";
    big_buf_release_after MS, 3600 * SECOND, STEP, "1ms..=3600s";
    net_write_timeout MS, 7200 * SECOND, STEP, "1ms..=7200s";
    linger_timeout ZERO, 60 * SECOND, STEP, "0ns..=60s";
    linger_bytes 0_usize, 16_777_216, 1, "0..=16777216";
    accept_budget 1_usize, 4096, 1, "1..=4096";
    max_connections 1_usize, 16_777_216, 1, "1..=16777216";
    max_silent_connections 1_usize, 16_777_216, 1, "1..=16777216";
    first_bytes_timeout ZERO, 3600 * SECOND, STEP, "0ns..=3600s";
    handshake_timeout MS, 3600 * SECOND, STEP, "1ms..=3600s";
    max_handshakes 1_usize, 16_777_216, 1, "1..=16777216";
    idle_timeout ZERO, 604_800 * SECOND, STEP, "0ns..=604800s";
    frame_timeout MS, 7200 * SECOND, STEP, "1ms..=7200s";
    max_buffered_bytes 1_048_576_usize, usize::MAX, 1, "1048576..=18446744073709551615";
    max_sessions_per_connection 1_usize, 16_777_216, 1, "1..=16777216";
    max_sessions 1_usize, 16_777_216, 1, "1..=16777216";
    session_budget 1_usize, 4096, 1, "1..=4096";
    galaxy_version 0_u8, 127, 1, "0..=127";
    max_queued_messages 16_usize, 4096, 1, "16..=4096";
    max_queued_bytes_per_connection 4096_usize, usize::MAX, 1, "4096..=18446744073709551615";
    max_queued_bytes 4096_usize, usize::MAX, 1, "4096..=18446744073709551615";
    request_timeout ZERO, 86_400 * SECOND, STEP, "0ns..=86400s";
    half_close_timeout ZERO, 86_400 * SECOND, STEP, "0ns..=86400s";
    max_waiting_writers 1_usize, 4096, 1, "1..=4096";
    max_glitches 0_usize, 16_777_216, 1, "0..=16777216";
    glitch_window SECOND, 3600 * SECOND, STEP, "1s..=3600s";
    login_timeout MS, 3600 * SECOND, STEP, "1ms..=3600s";
    max_login_attempts 1_usize, 1000, 1, "1..=1000";
    max_unauthenticated_connections 1_usize, 16_777_216, 1, "1..=16777216";
    max_unauthenticated_per_address 1_usize, 16_777_216, 1, "1..=16777216";
    max_login_failures_per_address 1_usize, 65_536, 1, "1..=65536";
    login_failure_delay ZERO, 60 * SECOND, STEP, "0ns..=60s";
    authenticate_ok_delay ZERO, SECOND, STEP, "0ns..=1s";
    request_cache_number 128_usize, 16_384, 1, "128..=16384";
    request_cache_instances 1_usize, 128, 1, "1..=128";
    request_cache_max_length 128_usize, 1 << 30, 1, "128..=1073741824";
    request_cache_bytes 4096_usize, usize::MAX, 1, "4096..=18446744073709551615";
    handler_report_after MS, 3600 * SECOND, STEP, "1ms..=3600s";
    max_log_events 0_usize, 1_048_576, 1, "0..=1048576";
}

switches! {
    auto_cpu_affinity
    multi_affinity_in_group
    force_all_cores
    enable_tasker
    enable_thread_pool_log
    enable_kill_log
    galaxy_protocol
    enable_perf_hist
}

#[test]
fn the_watermarks_have_their_ranges_and_their_order() {
    let high =
        |bytes| Config::default().write_low_watermark_bytes(0).write_high_watermark_bytes(bytes);
    assert_eq!(high(4096).validate(), Ok(()));
    assert_eq!(high(1 << 30).validate(), Ok(()));
    assert_eq!(text(&high(4095)), "write_high_watermark_bytes 4095 is outside 4096..=1073741824");
    assert_eq!(
        text(&high((1 << 30) + 1)),
        "write_high_watermark_bytes 1073741825 is outside 4096..=1073741824"
    );
    assert_eq!(high(5000).write_low_watermark_bytes(5000).validate(), Ok(()));
    assert_eq!(
        text(&high(5000).write_low_watermark_bytes(5001)),
        "write_low_watermark_bytes 5001 is outside 0..=5000 (write_high_watermark_bytes)"
    );
    assert_eq!(
        text(&high(5000).write_low_watermark_bytes((1 << 30) + 1)),
        "write_low_watermark_bytes 1073741825 is outside 0..=1073741824"
    );
}

#[test]
fn watermarks_may_be_set_by_name_in_any_order() {
    let set = |config: Config, name, value| config.set(name, value).expect("within its range");
    let config = set(Config::default(), "write_high_watermark_bytes", "8KiB");
    assert!(config.validate().is_err(), "the low one is still 256 KiB");
    assert_eq!(set(config, "write_low_watermark_bytes", "4KiB").validate(), Ok(()));
}

#[test]
fn the_default_is_valid() {
    assert_eq!(Config::default().validate(), Ok(()));
}

#[test]
fn zero_leaves_a_socket_buffer_to_the_kernel() {
    assert_eq!(Config::default().tcp_send_buf(0).tcp_recv_buf(0).validate(), Ok(()));
    assert_eq!(
        text(&Config::default().tcp_send_buf(1)),
        "tcp_send_buf 1 is outside 0 or 2048..=2097152"
    );
}

#[test]
fn no_field_is_left_unchecked() {
    let debug = format!("{:?}", Config::default());
    let fields = debug.matches(": ").count();
    assert_eq!(Config::FIELDS.len(), fields);
    let tested = RANGES.len() + SWITCHES.len();
    assert_eq!(tested + 2, fields, "the two watermarks have a test of their own");
}

#[test]
fn the_threads_of_all_groups_must_fit() {
    let config = Config::default().epoll_threads_per_group(4).reserve_threads_per_group(1);
    assert_eq!(config.clone().max_threads(40).validate_threads(8), Ok(()));
    let error = config.max_threads(39).validate_threads(8).expect_err("one too few");
    assert_eq!(error.field, "max_threads");
    assert_eq!(error.value, "39");
    assert_eq!(
        error.to_string(),
        "max_threads 39 is outside 40..=32768 \
         (8 groups x (4 epoll_threads_per_group + 1 reserve_threads_per_group))"
    );
    let most = Config::default().epoll_threads_per_group(128).reserve_threads_per_group(16);
    assert_eq!(most.max_threads(MOST_THREADS).validate_threads(128), Ok(()));
}

#[test]
fn a_name_is_known_in_every_spelling_of_operators() {
    let expected = Config::default().dynamic_threads(3);
    for name in [
        "dynamic_threads",
        " Dynamic_Threads",
        "epoll_group_dynamic_threads",
        "EPOLL_GROUP_DYNAMIC_THREADS",
        "polarx_rpc_epoll_group_dynamic_threads",
        "POLARX_RPC_DYNAMIC_THREADS",
    ] {
        assert_eq!(Config::default().set(name, "3").as_ref(), Ok(&expected), "{name}");
        assert_eq!(expected.get(name).as_deref(), Some("3"), "{name}");
    }
    let groups = Config::default().set("EPOLL_GROUP_EPOLL_GROUPS", "3");
    assert_eq!(groups, Ok(Config::default().epoll_groups(3)));
}

#[test]
fn a_plain_number_is_in_the_unit_of_the_tunable() {
    let set = |name, value| Config::default().set(name, value).expect("valid");
    assert_eq!(set("tcp_keep_alive", "60").tcp_keep_alive, 60 * SECOND);
    assert_eq!(set("net_write_timeout", "60").net_write_timeout, 60 * MS);
    assert_eq!(set("thread_deadlock_check_interval", "1").thread_deadlock_check_interval, MS);
    assert_eq!(set("tcp_notsent_lowat_bytes", "16KiB").tcp_notsent_lowat_bytes, 16_384);
}

#[test]
fn what_is_not_understood_is_said_in_one_line() {
    for (name, value, expected) in [
        ("epoll_groups", "eight", "epoll_groups \"eight\" is no count within 0..=128"),
        ("epoll_groups", "", "epoll_groups \"\" is no count within 0..=128"),
        ("epoll_groups", "-8", "epoll_groups -8 is outside 0..=128"),
        (
            "epoll_groups",
            "99999999999999999999",
            "epoll_groups 99999999999999999999 is outside 0..=128",
        ),
        ("linger_bytes", "big\nger", "linger_bytes \"big\\nger\" is no size within 0..=16777216"),
        ("linger_bytes", "17MiB", "linger_bytes 17825792 is outside 0..=16777216"),
        ("linger_timeout", "soon", "linger_timeout \"soon\" is no time within 0ns..=60s"),
        ("linger_timeout", "2m", "linger_timeout 120s is outside 0ns..=60s"),
        ("enable_tasker", "2", "enable_tasker \"2\" is not true or false"),
        (
            "polarx_rpc_epol_groups",
            "2",
            "unknown tunable \"polarx_rpc_epol_groups\", did you mean epoll_groups?",
        ),
        ("no\nsuch", "2", "unknown tunable \"no\\nsuch\""),
    ] {
        let error = Config::default().set(name, value).expect_err("not understood");
        assert_eq!(error.to_string(), expected);
        assert!(error.field.is_empty() || error.field == name, "{name}");
    }
    assert_eq!(Config::default().get("epol_groups"), None);
}

#[test]
fn what_has_no_counterpart_is_accepted_and_changes_nothing() {
    for name in ["epoll_timeout", "POLARX_RPC_EPOLL_GROUP_CTX_REFRESH_TIME", " rpc_port"] {
        assert_eq!(Config::default().set(name, "whatever"), Ok(Config::default()));
        assert!(Config::without_counterpart(name).is_some(), "{name}");
        assert_eq!(Config::default().get(name), None);
    }
    for field in Config::FIELDS {
        assert_eq!(Config::without_counterpart(field.name), None);
    }
    assert_eq!(Config::without_counterpart("rpc_ports"), None);
}

#[test]
fn all_values_by_name_make_the_same_configuration() {
    let config = Config::default()
        .auto_cpu_affinity(false)
        .linger_timeout(Duration::new(1, 1))
        .max_buffered_bytes(usize::MAX)
        .tcp_recv_buf(2048);
    let mut copy = Config::default();
    for field in Config::FIELDS {
        let value = field.value_in(&config);
        copy = copy.set(field.name, &value).expect("it reads what it wrote");
        assert_eq!(field.default_value(), field.value_in(&Config::default()));
    }
    assert_eq!(copy, config);
}
