//! Tests in this process, of the state machine that decides.

use std::hint::black_box;
use std::time::Instant;

use epoll_group::codec::auth::StoredPassword;
use epoll_group::internal;

use crate::claims::{Kind, PASSWORD};
use crate::welch::{self, Verdict};
use crate::{Expects, Line};

const CHALLENGE: [u8; 20] = *b"0123456789abcdefghij";

pub(crate) fn lines(tries: usize) -> impl Iterator<Item = Line> {
    let pairs = [
        (Kind::Unknown, Kind::Wrong, Expects::Nothing),
        (Kind::Right(0), Kind::Right(10), Expects::Nothing),
        (Kind::Right(0), Kind::Right(19), Expects::Nothing),
        (Kind::ShortUnknown, Kind::Short, Expects::Nothing),
        (Kind::NothingUnknown, Kind::Nothing, Expects::Nothing),
        (Kind::Short, Kind::Wrong, Expects::Whatever),
        (Kind::Wrong, Kind::Wrong, Expects::Nothing),
    ];
    let lines = pairs.into_iter().map(move |(one, other, expects)| {
        let verdict = test(tries, [one, other], attempt);
        let place = "process";
        Line { place, one: one.name(), other: other.name(), expects, verdict }
    });
    lines.chain(std::iter::once_with(move || Line {
        place: "process",
        one: "unknown user, without a hash",
        other: Kind::Wrong.name(),
        expects: Expects::Something,
        verdict: test(tries, [Kind::Unknown, Kind::Wrong], |answer, stored| {
            stored.is_some() && attempt(answer, stored)
        }),
    }))
}

fn attempt(answer: &[u8], stored: Option<&StoredPassword>) -> bool {
    internal::login(CHALLENGE, answer, stored)
}

/// Each try copies its input to the same place, so that both kinds find it in the same state.
fn test(
    tries: usize,
    kinds: [Kind; 2],
    login: impl Fn(&[u8], Option<&StoredPassword>) -> bool,
) -> Verdict {
    let answers = kinds.map(|kind| kind.answer(&CHALLENGE));
    let kept = StoredPassword::of(PASSWORD);
    let stored = kinds.map(|kind| kind.user_exists().then_some(kept));
    // Written long before it is read, because fresh memory is slower to read.
    let stored = black_box(Box::new(stored));
    let mut place = [0; 128];
    let mut times = Vec::with_capacity(tries);
    let mut random = fastrand::Rng::with_seed(0x1234_5678_9abc_def0);
    for warm in (0..tries + tries / 10).rev().map(|left| left >= tries) {
        let kind = random.u8(..2);
        let length = answers[usize::from(kind)].len();
        place[..length].copy_from_slice(&answers[usize::from(kind)]);
        let account = black_box(stored[usize::from(kind)].as_ref());
        let answer = black_box(&place[..length]);
        let began = Instant::now();
        let let_in = black_box(login(answer, account));
        let took = began.elapsed();
        assert!(!let_in, "nobody has the password");
        if !warm {
            times.push((u32::try_from(took.as_nanos()).unwrap_or(u32::MAX), kind));
        }
    }
    welch::compare(&times)
}
