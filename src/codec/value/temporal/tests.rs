#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test may panic on its own mistakes"
)]

use proptest::prelude::*;

use super::*;
use crate::codec::value::{Sign, ValueError};

fn datetime(text: &str) -> DateTime {
    text.parse().expect(text)
}

fn time(text: &str) -> Time {
    text.parse().expect(text)
}

#[test]
fn known_packed_values() {
    let at = datetime("2024-02-29 13:05:09.000123");
    assert_eq!(at.to_packed(), 0x19b2_bad1_4900_007b);
    assert_eq!(DateTime::from_packed(0x19b2_bad1_4900_007b), Ok(at));
    assert_eq!(time("10:00:00.5").to_packed(), 687_195_267_360);
    assert_eq!(time("-838:59:59").to_packed(), -57_651_262_128_128);
    assert_eq!(Time::from_packed(-57_651_262_128_128), Ok(time("-838:59:59")));
    assert_eq!(Date::from_packed(at.date().to_packed()), Ok(at.date()));
    assert!(Date::from_packed(at.to_packed()).is_err());
    assert!(Time::from_packed(i64::MIN).is_err());
    assert!(DateTime::from_packed(u64::MAX).is_err());
}

#[test]
fn each_part_has_its_range() {
    assert!(Date::new(9999, 12, 31).is_ok());
    assert_eq!(Date::new(0, 0, 0), Ok(Date::default()));
    let year = ValueError::OutOfRange { part: "year", value: 10_000, max: 9999 };
    assert_eq!(Date::new(10_000, 0, 0), Err(year));
    assert!(Date::new(0, 13, 0).is_err());
    assert!(Date::new(0, 0, 32).is_err());
    for (hour, minute, second, microsecond) in
        [(24, 0, 0, 0), (0, 60, 0, 0), (0, 0, 60, 0), (0, 0, 0, 1_000_000)]
    {
        assert!(DateTime::new(Date::default(), hour, minute, second, microsecond).is_err());
    }
    assert!(Time::new(Sign::Plus, 839, 0, 0, 0).is_err());
    assert_eq!(Time::new(Sign::Minus, 838, 59, 59, 999_999), Ok(Time::MIN));
}

#[test]
fn shown_as_short_as_possible_or_with_the_digits_asked_for() {
    let at = datetime("2024-02-29 12:34:56.789000");
    assert_eq!(at.to_string(), "2024-02-29 12:34:56.789");
    assert_eq!(format!("{at:.6}"), "2024-02-29 12:34:56.789000");
    assert_eq!(format!("{at:.2}"), "2024-02-29 12:34:56.78");
    assert_eq!(format!("{at:.0}"), "2024-02-29 12:34:56");
    assert_eq!(format!("{:.9}", Time::default()), "00:00:00.000000");
    assert_eq!(Time::MIN.to_string(), "-838:59:59.999999");
    assert_eq!(DateTime::default().to_string(), "0000-00-00 00:00:00");
}

#[test]
fn zero_has_no_sign_and_minus_comes_first() {
    assert_eq!(time("-00:00:00"), Time::default());
    assert!(time("-00:00:01") < Time::default());
    assert!(time("-10:00:00") < time("-09:00:00"));
    assert!(datetime("2024-01-01 00:00:00") < datetime("2024-01-01 00:00:00.1"));
}

#[test]
fn texts_of_another_form_are_refused() {
    for text in ["", "2024-2-29", "24-02-29", "2024-02-29 ", "2024-02-29-01", "+024-02-29"] {
        assert_eq!(text.parse::<Date>(), Err(ValueError::Syntax), "{text}");
    }
    for text in
        ["", "1:02:03", "01:02", "01:02:03.", "01:02:03.1234567", "--01:02:03", "01:02:03:04"]
    {
        assert_eq!(text.parse::<Time>(), Err(ValueError::Syntax), "{text}");
    }
    assert_eq!("2024-02-29_01:02:03".parse::<DateTime>(), Err(ValueError::Syntax), "separator");
    assert_eq!(datetime("2024-02-29T01:02:03"), datetime("2024-02-29 01:02:03"));
}

fn any_datetime() -> impl Strategy<Value = DateTime> {
    (0..=9999_u16, 0..=12_u8, 0..=31_u8, 0..24_u8, 0..60_u8, 0..60_u8, 0..1_000_000_u32).prop_map(
        |(y, m, d, hour, minute, second, micro)| {
            DateTime::new(Date::new(y, m, d).unwrap(), hour, minute, second, micro).unwrap()
        },
    )
}

fn any_time() -> impl Strategy<Value = Time> {
    (any::<bool>(), 0..=838_u16, 0..60_u8, 0..60_u8, 0..1_000_000_u32).prop_map(
        |(below, hour, minute, second, micro)| {
            let sign = if below { Sign::Minus } else { Sign::Plus };
            Time::new(sign, hour, minute, second, micro).unwrap()
        },
    )
}

/// Parts of a time, each with its sign. They order like the time.
fn parts(time: Time) -> [i32; 4] {
    let [hour, minute, second] = [time.hour(), time.minute().into(), time.second().into()];
    let parts = [hour.into(), minute.into(), second.into(), time.microsecond().cast_signed()];
    if time.sign() == Sign::Minus { parts.map(i32::wrapping_neg) } else { parts }
}

proptest! {
    #[test]
    fn datetimes_come_back_in_order(a in any_datetime(), b in any_datetime()) {
        prop_assert_eq!(DateTime::from_packed(a.to_packed()), Ok(a));
        prop_assert_eq!(a.to_string().parse(), Ok(a));
        prop_assert_eq!(a.cmp(&b), a.to_packed().cmp(&b.to_packed()));
        prop_assert_eq!(a.date().to_string().parse(), Ok(a.date()));
    }

    #[test]
    fn times_come_back_in_order(a in any_time(), b in any_time()) {
        prop_assert_eq!(Time::from_packed(a.to_packed()), Ok(a));
        prop_assert_eq!(a.to_string().parse(), Ok(a));
        prop_assert_eq!(a.cmp(&b), parts(a).cmp(&parts(b)));
    }

    #[test]
    fn any_number_unpacks_to_itself_or_to_an_error(packed: u64) {
        if let Ok(at) = DateTime::from_packed(packed) {
            prop_assert_eq!(at.to_packed(), packed);
        }
        if let Ok(time) = Time::from_packed(packed.cast_signed()) {
            prop_assert_eq!(time.to_packed(), packed.cast_signed());
        }
    }
}
