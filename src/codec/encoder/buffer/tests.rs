#![expect(clippy::arithmetic_side_effects, reason = "a test may panic on its own mistakes")]

use proptest::prelude::*;

use super::*;

fn small() -> (PagePool, OutBuffer) {
    let pool = PagePool::new(64, 3);
    let buffer = OutBuffer::new(&pool);
    (pool, buffer)
}

#[test]
fn an_empty_buffer_has_no_slices_and_no_pages() {
    let (pool, buffer) = small();
    assert_eq!(buffer.slices().count(), 0);
    assert!(buffer.is_empty());
    assert_eq!(buffer.open.capacity(), 0);
    drop(buffer);
    assert_eq!(pool.spare_pages(), 0);
}

#[test]
fn pages_go_back_to_the_pool_and_no_more_than_it_keeps() {
    let (pool, mut buffer) = small();
    buffer.put_bytes(&[7; 64 * 20]);
    assert_eq!(buffer.slices().count(), 20);
    buffer.advance(64 * 12 + 1);
    assert_eq!(buffer.len(), 64 * 8 - 1);
    assert_eq!(buffer.spare.len(), OutBuffer::CACHED_PAGES);
    assert_eq!(pool.spare_pages(), 2);
    drop(buffer);
    assert_eq!(pool.spare_pages(), 3);
    let mut other = OutBuffer::new(&pool);
    other.put_bytes(&[1]);
    assert_eq!(pool.spare_pages(), 2);
    other.clear();
    other.trim();
    assert_eq!(pool.spare_pages(), 3);
}

#[test]
fn a_word_never_spans_pages_and_can_be_patched() {
    let (_, mut buffer) = small();
    buffer.put_bytes(&[0; 60]);
    let mark = buffer.mark();
    buffer.put(Word::constant([1, 0, 0, 0, 0, 6]));
    buffer.put_bytes(&[9; 200]);
    buffer.patch(mark, 1, 0x0504_0302);
    let bytes = buffer.to_vec();
    assert_eq!(bytes.get(60..67), Some(&[1, 2, 3, 4, 5, 6, 9][..]));
    assert_eq!(buffer.slices().next().map(<[u8]>::len), Some(60));
    buffer.roll_back(mark);
    assert_eq!(buffer.to_vec(), [0; 60]);
}

#[derive(Clone, Debug)]
enum Step {
    Word(u64),
    Bytes(usize),
    Advance(usize),
    RollBack(Vec<usize>),
    Clear,
    Trim,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<u64>().prop_map(Step::Word),
        4 => (0..300_usize).prop_map(Step::Bytes),
        2 => (0..400_usize).prop_map(Step::Advance),
        2 => prop::collection::vec(0..200_usize, 0..4).prop_map(Step::RollBack),
        1 => Just(Step::Clear),
        1 => Just(Step::Trim),
    ]
}

proptest! {
    /// The naive twin is one vector.
    #[test]
    fn any_steps_leave_what_a_vector_would_hold(steps in prop::collection::vec(step(), 0..60)) {
        let (_, mut buffer) = small();
        let mut twin = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            let fill = u8::try_from(number).unwrap_or(u8::MAX);
            match step {
                Step::Word(value) => {
                    buffer.put(Word::varint(value));
                    crate::codec::wire::put_varint(&mut twin, value);
                }
                Step::Bytes(count) => {
                    buffer.put_bytes(&vec![fill; count]);
                    twin.extend(vec![fill; count]);
                }
                Step::Advance(count) => {
                    buffer.advance(count);
                    twin.drain(..count.min(twin.len()));
                }
                Step::RollBack(counts) => {
                    let mark = buffer.mark();
                    for &count in &counts {
                        buffer.put_bytes(&vec![fill; count]);
                        buffer.put(Word::varint(300));
                    }
                    prop_assert_eq!(buffer.since(mark), counts.iter().sum::<usize>() + 2 * counts.len());
                    buffer.roll_back(mark);
                }
                Step::Clear => {
                    buffer.clear();
                    twin.clear();
                }
                Step::Trim => buffer.trim(),
            }
            prop_assert_eq!(buffer.len(), twin.len());
            prop_assert_eq!(buffer.to_vec(), &twin[..]);
            prop_assert!(buffer.slices().all(|slice| !slice.is_empty()));
            prop_assert!(buffer.spare.len() <= OutBuffer::CACHED_PAGES);
        }
    }
}
