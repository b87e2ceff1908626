use super::*;
use crate::test_servers::{any, epoll_group};
use crate::thread_per_connection;

const PATIENCE: Duration = Duration::from_secs(10);
const SHAPE: Shape = Shape { connections: 65, locks: 2, patience: PATIENCE };

#[test]
fn every_transaction_ends_and_every_waiter_has_the_lock() {
    let (_runtime, ours) = epoll_group(4);
    let threads = thread_per_connection::start(any()).unwrap();
    for address in [ours, threads] {
        let mut load = Load::connect(address, &SHAPE).unwrap();
        let report = load.run_for(Duration::from_millis(20)).unwrap();
        assert!(report.requests >= 65);
        assert_eq!(load.answers_total(), 2 * report.requests);
        assert!(load.release(|| ()).unwrap().is_some());
        let again = load.run_for(Duration::from_millis(20)).unwrap();
        assert!(again.requests >= 65);
        assert!(load.answers_total() >= 2 * (report.requests + again.requests + 65));
    }
}
