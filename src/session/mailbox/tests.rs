use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn request(arrived: Instant) -> Queued {
    Queued::new(SessionCommand::Savepoint(AutoSp::default()), 0, arrived)
}

/// A mailbox with requests that arrived at these times.
fn mailbox(arrivals: &[Instant]) -> Mailbox<()> {
    let mut mailbox = Mailbox::default();
    arrivals.iter().for_each(|arrived| mailbox.add(request(*arrived), || ()));
    mailbox
}

/// Begins the next command. Returns the reason if it was cancelled before.
fn begin(mailbox: &mut Mailbox<()>) -> Option<CancelReason> {
    mailbox.begin(100).expect("a command").0.cancelled
}

#[test]
fn a_queued_message_counts_with_its_own_size() {
    let commands = [
        (SessionCommand::Plan(Box::default(), 0), size_of::<ExecPlan>()),
        (SessionCommand::Sql(Box::default()), size_of::<StmtExecute>()),
    ];
    for (command, size) in commands {
        assert!(Queued::new(command, 0, Instant::now()).bytes >= size);
    }
}

#[test]
fn it_gives_the_memory_of_a_burst_back() {
    let mut mailbox = mailbox(&[Instant::now(); 100]);
    while mailbox.begin(100).is_some() {
        assert_eq!(mailbox.end(), None);
    }
    assert!(mailbox.queue.capacity() >= 100);
    assert_eq!(mailbox.settle(false, false), (Settled::Idle, Some(())));
    assert_eq!(mailbox.queue.capacity(), KEPT_CAPACITY);
}

/// The drain leaves a busy session to itself.
#[test]
fn a_session_that_was_busy_when_a_drain_began_ends_itself() {
    let mut mailbox = mailbox(&[Instant::now()]);
    assert!(!mailbox.close_if_done());
    begin(&mut mailbox);
    assert!(!mailbox.close_if_idle());
    assert_eq!(mailbox.settle(false, true), (Settled::Busy, None));
    mailbox.end();
    assert_eq!(mailbox.settle(false, true), (Settled::ToEnd, None));
    assert!(mailbox.close_if_done() && !mailbox.close_if_done());
    assert_eq!(mailbox.settle(false, true), (Settled::Idle, Some(())));
    assert!(!mailbox.close_if_idle(), "it is closed");
}

#[test]
fn a_session_waits_for_its_timestamps_before_it_closes() {
    let now = Instant::now();
    let mut mailbox = mailbox(&[now]);
    assert!(mailbox.ask_timestamps(now) && mailbox.ask_timestamps(now));
    mailbox.add(Queued::new(SessionCommand::Close, 0, now), || ());
    assert!(!mailbox.ask_timestamps(now), "the id has no session behind the close");
    begin(&mut mailbox);
    mailbox.end();
    assert!(mailbox.begin(100).is_none());
    assert_eq!(mailbox.settle(false, false), (Settled::Busy, None));
    assert!(!mailbox.timestamps_answered(false, || ()), "one more is due");
    assert!(mailbox.timestamps_answered(false, || ()));
    assert!(mailbox.begin(100).is_some());
}

#[test]
fn in_a_drain_a_session_ends_when_it_has_its_timestamps() {
    let mut mailbox = mailbox(&[Instant::now()]);
    assert!(mailbox.ask_timestamps(Instant::now()));
    begin(&mut mailbox);
    mailbox.end();
    assert!(!mailbox.close_if_done());
    assert_eq!(mailbox.settle(false, true), (Settled::Idle, Some(())));
    assert!(!mailbox.close_if_idle());
    // The hold keeps the connection until the session has ended.
    assert!(mailbox.timestamps_answered(true, || ()));
    assert!(mailbox.close_if_done());
    assert_eq!(mailbox.settle(false, true), (Settled::Idle, Some(())));
}

#[test]
fn an_idle_session_stays_when_it_has_its_timestamps() {
    let mut mailbox = mailbox(&[]);
    assert!(mailbox.ask_timestamps(Instant::now()) && !mailbox.is_idle());
    assert!(!mailbox.timestamps_answered(false, || ()));
    assert!(mailbox.is_idle());
}

#[test]
fn a_session_of_one_statement_is_over_after_it() {
    let mut mailbox = mailbox(&[Instant::now()]);
    begin(&mut mailbox);
    mailbox.end();
    assert_eq!(mailbox.settle(true, true), (Settled::Over, Some(())));
    assert_eq!(mailbox.admit(1, Instant::now(), || true), Err(NotQueued::Closed));
}

#[test]
fn a_cancel_means_the_oldest_unanswered_request_once() {
    let mut mailbox = mailbox(&[Instant::now(); 2]);
    mailbox.queue.push_front(Queued::new(SessionCommand::Open, 0, Instant::now()));
    begin(&mut mailbox);
    // The opening of a session is no request.
    assert_eq!(mailbox.cancel(CancelReason::Query, false), Cancelled::Waiting);
    assert_eq!(mailbox.cancel(CancelReason::Query, false), Cancelled::Nothing);
    assert_eq!((mailbox.cancelled(), mailbox.end()), (None, None));
    assert_eq!(begin(&mut mailbox), Some(CancelReason::Query));
    mailbox.end();
    assert_eq!(begin(&mut mailbox), None);
    assert_eq!(mailbox.cancel(CancelReason::Query, true), Cancelled::Nothing);
    assert_eq!(mailbox.cancel(CancelReason::Query, false), Cancelled::Running);
    assert_eq!(mailbox.cancel(CancelReason::Session, false), Cancelled::Nothing);
    assert_eq!(mailbox.end(), Some(CancelReason::Query));
    assert_eq!(mailbox.cancelled(), None);
}

#[test]
fn a_cancel_does_not_pass_over_a_request_that_has_its_error() {
    let broken = SessionCommand::Broken(SessionError::unsupported("too long"));
    for refused in [broken, SessionCommand::Unsupported] {
        let mut mailbox = mailbox(&[]);
        mailbox.add(Queued::new(refused, 0, Instant::now()), || ());
        mailbox.add(request(Instant::now()), || ());
        assert_eq!(mailbox.cancel(CancelReason::Query, false), Cancelled::Nothing);
        begin(&mut mailbox);
        mailbox.end();
        assert_eq!(mailbox.cancel(CancelReason::Query, false), Cancelled::Waiting);
    }
}

#[test]
fn the_end_of_a_session_cancels_whatever_runs() {
    let mut mailbox = mailbox(&[]);
    assert_eq!(mailbox.cancel(CancelReason::Session, false), Cancelled::Nothing);
    mailbox.add(Queued::new(SessionCommand::Close, 0, Instant::now()), || ());
    begin(&mut mailbox);
    assert_eq!(mailbox.cancel(CancelReason::Session, true), Cancelled::Running);
}

#[test]
fn requests_older_than_the_timeout_are_cancelled() {
    let start = Instant::now();
    let mut mailbox = mailbox(&[start, start + SECOND, start + 2 * SECOND]);
    assert_eq!(mailbox.check_deadline(start, 5 * SECOND), (false, Some(5 * SECOND)));
    begin(&mut mailbox);
    let now = start + 6 * SECOND;
    // The second of the three is late too, and waits.
    assert_eq!(mailbox.check_deadline(now, 5 * SECOND), (true, Some(SECOND)));
    let cancel_late =
        |mailbox: &mut Mailbox<()>, now, answered| mailbox.cancel_late(now, 5 * SECOND, answered);
    assert_eq!(cancel_late(&mut mailbox, now - 2 * SECOND, false), Cancelled::Nothing);
    assert_eq!(cancel_late(&mut mailbox, now, true), Cancelled::Nothing);
    assert_eq!(cancel_late(&mut mailbox, now, false), Cancelled::Running);
    assert_eq!(mailbox.check_deadline(now, 5 * SECOND), (false, Some(SECOND)));
    assert_eq!(mailbox.end(), Some(CancelReason::Deadline));
    assert_eq!(begin(&mut mailbox), Some(CancelReason::Deadline));
    mailbox.end();
    assert_eq!(begin(&mut mailbox), None);
    assert_eq!(mailbox.check_deadline(now, 5 * SECOND), (false, Some(SECOND)));
    mailbox.end();
    // Other commands have no deadline.
    mailbox.add(Queued::new(SessionCommand::Open, 0, start), || ());
    assert_eq!(mailbox.check_deadline(now, SECOND), (false, None));
}

#[test]
fn the_reader_waits_for_a_place_while_the_session_has_no_chance_or_goes_on() {
    let (now, full) = (Instant::now(), Err(NotQueued::Full));
    let later = |since: Instant| Err(NotQueued::Later(since + FULL_MAILBOX_TIMEOUT));
    let mut mailbox = mailbox(&[now; 4]);
    let admit = |mailbox: &mut Mailbox<()>, now| mailbox.admit(4, now, || true);
    assert_eq!(mailbox.admit(4, now, || false), full);
    assert_eq!(mailbox.admit(5, now, || false), Ok(()));
    assert_eq!(admit(&mut mailbox, now), later(now));
    let until = now + FULL_MAILBOX_TIMEOUT;
    assert_eq!(admit(&mut mailbox, until - SECOND / 10), later(now));
    // It has not run, so it gets another time.
    assert_eq!(admit(&mut mailbox, until), later(until));
    // It runs, and has not begun half of its requests in time.
    assert!(!mailbox.begin(4).expect("a command").1);
    mailbox.add(request(now), || ());
    let until = until + FULL_MAILBOX_TIMEOUT;
    assert_eq!(admit(&mut mailbox, until), full);
    // The end was noticed late, so the session could not run either.
    assert_eq!(admit(&mut mailbox, until + 10 * SECOND), later(until + 10 * SECOND));
    mailbox.end();
    let resumes = [(); 4].map(|()| mailbox.begin(4).expect("a command").1);
    assert_eq!(resumes, [false, true, false, false]);
}

/// A drained backlog resumes the reader too, so the mailbox may be full again each time.
#[test]
fn a_session_that_begins_its_requests_is_not_closed_although_its_mailbox_stays_full() {
    let now = Instant::now();
    let mut mailbox = mailbox(&[now; 4]);
    let until = now + FULL_MAILBOX_TIMEOUT;
    assert_eq!(mailbox.admit(4, now, || true), Err(NotQueued::Later(until)));
    for _ in 0..8 {
        mailbox.begin(4).expect("a command");
        mailbox.end();
        assert_eq!(mailbox.admit(4, now, || true), Ok(()));
        mailbox.add(request(now), || ());
    }
    let next = until + FULL_MAILBOX_TIMEOUT;
    assert_eq!(mailbox.admit(4, until, || true), Err(NotQueued::Later(next)));
}

#[test]
fn a_handler_goes_on_with_credit_and_room_or_to_ask_for_more() {
    let spent = || {
        let mut credit = Credit::new(0);
        credit.charge(100);
        Some(credit)
    };
    for (offer, left, has_room, is_finished, expected) in [
        (None, None, true, false, Some(true)),
        (None, None, false, true, None),
        (None, Some(Credit::new(0)), true, true, Some(true)),
        (None, Some(Credit::new(0)), false, false, None),
        (None, spent(), true, false, None),
        (None, spent(), true, true, Some(false)),
        // The offer does not suffice: the client must learn that.
        (Some(99), spent(), false, false, Some(true)),
        (Some(100), spent(), false, false, None),
        (Some(100), spent(), true, false, Some(true)),
    ] {
        let mut mailbox = mailbox(&[Instant::now()]);
        assert!(!mailbox.offer(1), "no request runs");
        begin(&mut mailbox);
        assert!(offer.is_none_or(|bytes| mailbox.offer(bytes)));
        let go_on = mailbox.may_write(&mut { left }, has_room, is_finished);
        assert_eq!(go_on, expected, "{offer:?} {left:?} {has_room} {is_finished}");
        assert_eq!(mailbox.take_offers(), Offers::default());
    }
}

#[test]
fn a_waiting_handler_is_cancelled_and_no_other() {
    let mut mailbox = mailbox(&[Instant::now()]);
    begin(&mut mailbox);
    assert_eq!(mailbox.cancel_writer(), Cancelled::Nothing);
    mailbox.handler_waits = true;
    assert_eq!(mailbox.cancel_writer(), Cancelled::Running);
    assert_eq!(mailbox.end(), Some(CancelReason::Deadline));
    assert_eq!(mailbox.cancel_writer(), Cancelled::Nothing);
}

#[test]
fn a_closed_mailbox_keeps_its_connection_until_the_running_request_ends() {
    let mut mailbox = mailbox(&[Instant::now(); 3]);
    begin(&mut mailbox);
    let (refused, reader_waits, hold) = mailbox.close();
    assert_eq!((refused.len(), reader_waits, hold), (2, false, None));
    mailbox.end();
    assert_eq!(mailbox.close().2, Some(()));
}

#[test]
fn the_arrival_of_the_oldest_unanswered_request_counts() {
    let start = Instant::now();
    let mut mailbox = mailbox(&[]);
    assert!(mailbox.is_unused());
    mailbox.add(Queued::new(SessionCommand::Open, 0, start), || ());
    assert!(mailbox.is_unused());
    mailbox.add(request(start + SECOND), || ());
    mailbox.add(request(start + 2 * SECOND), || ());
    let arrived =
        |mailbox: &Mailbox<()>| [0, 1, 2].map(|at| mailbox.arrived_at(start + at * SECOND));
    assert_eq!(arrived(&mailbox), [false, true, false]);
    begin(&mut mailbox);
    mailbox.end();
    begin(&mut mailbox);
    mailbox.end();
    // The first use of the session counts as well.
    assert_eq!(arrived(&mailbox), [false, true, true]);
}
