//! Plans, played against streams.

use std::time::Duration;

use crate::faults::plan::{CAPACITY, Plan, Step, earliest};
use crate::faults::script::{Coalesce, Cut, Dice, Direction, Faults, How, Mark, Script, Stop};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Pieces that were sent, with their times, and the end of the stream.
#[derive(Debug, PartialEq, Eq)]
struct Trace {
    pieces: Vec<(Duration, Vec<u8>)>,
    end: End,
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Ended(Duration),
    Cut(Duration, How),
    Stuck,
}

impl Trace {
    fn bytes(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(|(_, piece)| piece).copied().collect()
    }
}

fn plan(faults: &Faults) -> Plan {
    Plan::new(faults, Dice::new(7, 1, 0))
}

fn stream(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 % 251) as u8).collect()
}

/// Gives a plan the bytes of `input` at their times, then the end of the stream.
fn play(mut plan: Plan, input: &[(Duration, &[u8])]) -> Trace {
    let mut input = input.iter().copied().peekable();
    let (mut now, mut pieces) = (Duration::ZERO, Vec::new());
    loop {
        while let Some((_, bytes)) = input.next_if(|(at, _)| *at <= now) {
            plan.handle_bytes(now, bytes);
        }
        if input.peek().is_none() {
            plan.handle_end();
        }
        let wait = match plan.poll(now) {
            Step::Send(bytes) => {
                let bytes = bytes.to_vec();
                plan.handle_sent(now, bytes.len());
                pieces.push((now, bytes));
                continue;
            }
            Step::End => return Trace { pieces, end: End::Ended(now) },
            Step::Cut(how) => return Trace { pieces, end: End::Cut(now, how) },
            Step::Wait(until) => until,
        };
        let next = input.peek().map(|(at, _)| *at);
        match earliest(wait, next) {
            None => return Trace { pieces, end: End::Stuck },
            Some(until) => {
                assert!(until > now, "a wait that is over, {until:?} at {now:?}");
                now = until;
            }
        }
    }
}

fn play_all(faults: &Faults, bytes: &[u8]) -> Trace {
    play(plan(faults), &[(Duration::ZERO, bytes)])
}

#[test]
fn without_faults_all_goes_on_at_once() {
    let bytes = stream(1000);
    let trace = play_all(&Faults::default(), &bytes);
    assert_eq!(trace.pieces, [(Duration::ZERO, bytes)]);
    assert_eq!(trace.end, End::Ended(Duration::ZERO));
}

#[test]
fn a_delay_moves_each_arrival_and_keeps_the_order() {
    let faults = Faults { delay: ms(50), jitter: ms(40), ..Faults::default() };
    let bytes = stream(100);
    let input: Vec<_> = bytes.chunks(10).zip(0..).map(|(part, at)| (ms(at * 5), part)).collect();
    let trace = play(plan(&faults), &input);
    assert_eq!(trace.bytes(), bytes);
    let mut taken = 0;
    for (at, piece) in &trace.pieces {
        let arrived = input[taken / 10].0;
        assert!(*at >= arrived + ms(50), "{at:?} of {arrived:?}");
        taken += piece.len();
    }
    let last = trace.pieces.last().expect("pieces").0;
    assert!(last <= ms(45 + 90), "{last:?}");
}

#[test]
fn chopped_pieces_have_one_to_n_bytes_wherever_reads_end() {
    let faults = Faults { chop: Some(9), ..Faults::default() };
    let bytes = stream(5000);
    let whole = play_all(&faults, &bytes);
    assert_eq!(whole.bytes(), bytes);
    let lengths: Vec<_> = whole.pieces.iter().map(|(_, piece)| piece.len()).collect();
    assert!(lengths.iter().all(|length| (1..=9).contains(length)));
    assert!((1..=9).all(|length| lengths.contains(&length)));
    let input: Vec<_> = bytes.chunks(333).zip(0..).map(|(part, at)| (ms(at), part)).collect();
    assert_eq!(play(plan(&faults), &input).bytes(), bytes);
    let faults = Faults { chop: Some(1), ..Faults::default() };
    assert_eq!(play_all(&faults, &bytes).pieces.len(), bytes.len());
}

#[test]
fn bytes_are_gathered_for_a_time_or_to_a_number() {
    let coalesce = Some(Coalesce { time: ms(20), bytes: 25 });
    let faults = Faults { coalesce, ..Faults::default() };
    let bytes = stream(100);
    // 10 bytes each ms: the third makes 30.
    let fast: Vec<_> = bytes.chunks(10).zip(0..).map(|(part, at)| (ms(at), part)).collect();
    let sent = play(plan(&faults), &fast).pieces;
    let sent: Vec<_> = sent.iter().map(|(at, piece)| (*at, piece.len())).collect();
    // The end of the stream lets the rest go.
    assert_eq!(sent, [(ms(2), 30), (ms(5), 30), (ms(8), 30), (ms(9), 10)]);
    // 10 bytes each 15 ms: 20 ms after the first there are two.
    let slow: Vec<_> = bytes.chunks(10).zip(0..).map(|(part, at)| (ms(at * 15), part)).collect();
    let sent = play(plan(&faults), &slow).pieces;
    let sent: Vec<_> = sent.iter().map(|(at, piece)| (*at, piece.len())).collect();
    let expected = [(20, 20), (50, 20), (80, 20), (110, 20), (135, 20)];
    assert_eq!(sent, expected.map(|(at, count)| (ms(at), count)));
}

#[test]
fn corrupted_bytes_differ_in_one_bit_and_are_counted() {
    let bytes = stream(CAPACITY);
    for (corrupt, least, most) in
        [(1e-3, 150, 400), (0.5, 130_000, 132_500), (1.0, 262_144, 262_144)]
    {
        let mut plan = plan(&Faults { corrupt, ..Faults::default() });
        plan.handle_bytes(Duration::ZERO, &bytes);
        let flipped = plan.flipped();
        assert!((least..=most).contains(&flipped), "{flipped} at a rate of {corrupt}");
        let Step::Send(sent) = plan.poll(Duration::ZERO) else { panic!("all is there") };
        let different: Vec<_> =
            sent.iter().zip(&bytes).map(|(a, b)| (a ^ b).count_ones()).collect();
        assert!(different.iter().all(|bits| *bits <= 1));
        assert_eq!(different.iter().map(|bits| u64::from(*bits)).sum::<u64>(), flipped);
    }
}

#[test]
fn what_is_corrupted_does_not_depend_on_reads() {
    let faults = Faults { corrupt: 0.01, ..Faults::default() };
    let bytes = stream(10_000);
    let whole = play_all(&faults, &bytes).bytes();
    for size in [1, 7, 4096] {
        let input: Vec<_> = bytes.chunks(size).map(|part| (Duration::ZERO, part)).collect();
        assert_eq!(play(plan(&faults), &input).bytes(), whole);
    }
}

#[test]
fn a_rate_is_kept() {
    let faults = Faults { rate: Some(10_000), ..Faults::default() };
    let bytes = stream(5_000);
    let trace = play_all(&faults, &bytes);
    assert_eq!(trace.bytes(), bytes);
    // The last piece goes out when those before it are paid for.
    assert_eq!(trace.end, End::Ended(ms(490)));
    let slow = Faults { rate: Some(4), ..Faults::default() };
    let trace = play_all(&slow, &stream(3));
    assert_eq!(trace.pieces.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 250, 500].map(ms));
}

#[test]
fn a_stop_holds_bytes_and_the_end() {
    let bytes = stream(100);
    let stopped = |at, pause| Faults { stop: Some(Stop { at, pause }), ..Faults::default() };
    let trace = play_all(&stopped(Mark::Byte(30), None), &bytes);
    assert_eq!((trace.bytes(), trace.end), (bytes[..30].to_vec(), End::Stuck));
    let trace = play_all(&stopped(Mark::Byte(100), None), &bytes);
    assert_eq!((trace.bytes(), trace.end), (bytes.clone(), End::Stuck));
    let trace = play_all(&stopped(Mark::Byte(30), Some(ms(70))), &bytes);
    assert_eq!((trace.bytes(), trace.end), (bytes.clone(), End::Ended(ms(70))));
    let input = [(ms(10), &bytes[..50]), (ms(20), &bytes[50..])];
    let trace = play(plan(&stopped(Mark::Time(ms(15)), Some(ms(40)))), &input);
    assert_eq!(trace.pieces.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [10, 55].map(ms));
    let trace = play(plan(&stopped(Mark::Time(ms(15)), None)), &input);
    assert_eq!((trace.bytes(), trace.end), (bytes[..50].to_vec(), End::Stuck));
}

#[test]
fn a_cut_at_a_byte_is_exact() {
    let bytes = stream(1000);
    for at in [0, 1, 999, 1000] {
        let cut = Some(Cut { at: Mark::Byte(at), how: How::Reset });
        let trace = play_all(&Faults { cut, chop: Some(300), ..Faults::default() }, &bytes);
        assert_eq!(trace.bytes(), bytes[..at as usize]);
        assert_eq!(trace.end, End::Cut(Duration::ZERO, How::Reset));
    }
    let cut = Some(Cut { at: Mark::Byte(1001), how: How::Close });
    let trace = play_all(&Faults { cut, ..Faults::default() }, &bytes);
    assert_eq!(trace.end, End::Ended(Duration::ZERO));
}

#[test]
fn a_cut_at_a_time_comes_whatever_is_waited_for() {
    let bytes = stream(1000);
    let cut = Some(Cut { at: Mark::Time(ms(30)), how: How::Close });
    let slow = Faults { cut, rate: Some(1000), ..Faults::default() };
    let late = Faults { cut, delay: ms(500), ..Faults::default() };
    let stopped = Some(Stop { at: Mark::Byte(0), pause: None });
    let stopped = Faults { cut, stop: stopped, ..Faults::default() };
    for faults in [slow, late, stopped] {
        assert_eq!(play_all(&faults, &bytes).end, End::Cut(ms(30), How::Close));
    }
}

#[test]
fn a_full_plan_has_no_room() {
    let mut plan = plan(&Faults { delay: ms(10), ..Faults::default() });
    plan.handle_bytes(Duration::ZERO, &vec![0; CAPACITY]);
    assert_eq!(plan.room(), 0);
    assert_eq!(plan.poll(Duration::ZERO), Step::Wait(Some(ms(10))));
    assert!(matches!(plan.poll(ms(10)), Step::Send(_)));
    plan.handle_sent(ms(10), 100);
    assert_eq!(plan.room(), 100);
    plan.handle_end();
    assert_eq!(plan.room(), 0);
}

#[test]
fn the_same_seed_and_connection_give_the_same_plan() {
    let faults = Faults {
        corrupt: 0.01,
        delay: ms(1),
        jitter: ms(30),
        chop: Some(50),
        rate: Some(100_000),
        ..Faults::default()
    };
    let script = |seed| Script { seed, share: 0.5, up: faults.clone(), down: faults.clone() };
    let bytes = stream(5_000);
    let trace = |seed, connection, direction| {
        let (up, down) = script(seed).plans(connection);
        let plan = if direction == Direction::Up { up } else { down };
        play(plan, &[(Duration::ZERO, &bytes)])
    };
    let clean = |connection| trace(7, connection, Direction::Up).bytes() == bytes;
    let spared = (0..100).filter(|&connection| clean(connection)).count();
    assert!((30..70).contains(&spared), "{spared} of 100 at a share of a half");
    let faulty = (0..).find(|&connection| !clean(connection)).expect("one of them");
    for direction in [Direction::Up, Direction::Down] {
        assert_eq!(trace(7, faulty, direction), trace(7, faulty, direction));
    }
    assert_ne!(trace(7, faulty, Direction::Up), trace(7, faulty, Direction::Down));
    let others = (0..20)
        .filter(|&seed| trace(seed, faulty, Direction::Up) == trace(7, faulty, Direction::Up));
    assert_eq!(others.collect::<Vec<_>>(), [7]);
}
