//! Statements that operators of the original type.

use lab::xrpc::AUTO;

use super::{Server, change, failure, rows, text};

#[test]
fn tunables_counters_and_histograms_have_their_old_names() {
    let server = Server::start();
    let mut client = server.client();
    let hist = "show variables like '%perf_hist%'";
    assert_eq!(rows(&mut client, hist), "polarx_rpc_enable_perf_hist|OFF;");
    change(&mut client, "set global polarx_rpc_enable_perf_hist = on");
    assert_eq!(rows(&mut client, hist), "polarx_rpc_enable_perf_hist|ON;");
    let tunables = rows(&mut client, "show global variables like 'POLARX\\_RPC\\_%'");
    for name in ["epoll_group_dynamic_threads|0;", "max_queued_messages|128;", "tcp_keep_alive|30;"]
    {
        assert!(tunables.contains(&format!("polarx_rpc_{name}")), "{name}: {tunables}");
    }
    change(&mut client, "set @@global.polarx_rpc_max_queued_messages = 64");
    assert_eq!(rows(&mut client, "select @@polarx_rpc_max_queued_messages"), "64;");
    assert_eq!(failure(&mut client, "set polarx_rpc_max_queued_messages = 64").code, 1229);
    assert_eq!(failure(&mut client, "set global polarx_rpc_epoll_groups = 9").code, 1238);
    // A script of the original runs on, and learns what has no effect.
    change(&mut client, "set global polarx_rpc_mcs_spin_cnt = 2000");
    let warning = "Warning|1287u|Variable 'polarx_rpc_mcs_spin_cnt' has no effect: \
                   there are no spin locks;";
    assert_eq!(rows(&mut client, "show warnings"), warning);
    let status = rows(&mut client, "show status like 'polarx_rpc%'");
    for name in ["inited", "tcp_connections", "total_sessions", "sql_hit", "plan_evict"] {
        assert!(status.contains(&format!("polarx_rpc_{name}|")), "{name}: {status}");
    }
    let sessions = client.execute(AUTO | 1, "show status like 'polarx_rpc_%_sessions'").good();
    let expected = "polarx_rpc_worker_sessions|1;polarx_rpc_total_sessions|2;";
    assert_eq!(text(&sessions), expected);
    assert!(rows(&mut client, "CALL xrpc.perf_hist('run')").starts_with("run|"));
    assert!(rows(&mut client, "call `xrpc`.`perf_hist` ( 'all' )").contains("work_queue|"));
    assert_eq!(rows(&mut client, "call xrpc.perf_hist('reset')"), "");
    assert_eq!(failure(&mut client, "call xrpc.perf_hist('missing')").code, 1210);
}
