use proptest::prelude::*;

use super::*;

/// A file in memory that fails on command, and that keeps its synced bytes apart.
#[derive(Clone, Debug, Default)]
struct Scripted(Arc<std::sync::Mutex<Script>>);

#[derive(Debug, Default)]
struct Script {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    /// Changes since the last sync.
    dirty: Vec<Did>,
    fails: bool,
}

#[derive(Clone, Debug)]
enum Did {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

impl Did {
    fn to(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(offset, written) => {
                let end = offset + written.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset..end].copy_from_slice(written);
            }
            Self::SetLen(len) => bytes.resize(*len, 0),
        }
    }
}

impl Scripted {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().expect("nobody panics")
    }

    fn act(&self, did: Did) -> io::Result<()> {
        let mut script = self.script();
        if script.fails {
            return Err(io::ErrorKind::StorageFull.into());
        }
        did.to(&mut script.bytes);
        script.dirty.push(did);
        Ok(())
    }
}

impl StorageBackend for Scripted {
    fn len(&self) -> io::Result<u64> {
        Ok(self.script().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (script, from) = (self.script(), offset as usize);
        let bytes = script.bytes.get(from..from + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.act(Did::SetLen(len as usize))
    }

    /// If a sync fails, no later sync makes its changes durable.
    fn sync_data(&self) -> io::Result<()> {
        let script = &mut *self.script();
        let dirty = std::mem::take(&mut script.dirty);
        if script.fails {
            return Err(io::ErrorKind::StorageFull.into());
        }
        dirty.iter().for_each(|did| did.to(&mut script.synced));
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.act(Did::Write(offset as usize, data.to_vec()))
    }
}

fn pair() -> (Scripted, Retry) {
    let file = Scripted::default();
    (file.clone(), Retry::new(Box::new(file)))
}

fn all(file: &Retry) -> Vec<u8> {
    let mut bytes = vec![0; file.len().expect("no failure") as usize];
    file.read(0, &mut bytes).expect("no failure");
    bytes
}

#[test]
fn failed_sync_is_done_again_with_all_that_it_was_for() {
    let (file, retry) = pair();
    retry.write(0, b"before the sync").unwrap();
    file.script().fails = true;
    retry.sync_data().unwrap();
    assert_eq!(retry.failure().map(|error| error.kind()), Some(io::ErrorKind::StorageFull));
    retry.settle().expect_err("it fails still");
    assert_eq!(all(&retry), b"before the sync");
    file.script().fails = false;
    retry.settle().unwrap();
    assert!(retry.failure().is_none());
    assert_eq!(file.script().synced, b"before the sync");
}

#[test]
fn reads_see_what_could_not_be_written() {
    let (file, retry) = pair();
    retry.write(0, b"there").unwrap();
    retry.sync_data().unwrap();
    file.script().fails = true;
    retry.write(3, b"more").unwrap();
    retry.set_len(9).unwrap();
    assert_eq!(all(&retry), b"themore\0\0");
    let mut part = [0; 3];
    retry.read(2, &mut part).unwrap();
    assert_eq!(&part, b"emo");
    retry.read(7, &mut part).expect_err("that is beyond its end");
    assert_eq!(file.script().bytes, b"there");
}

#[derive(Clone, Debug)]
enum Step {
    Do(Did),
    Sync,
    Fail(bool),
    /// From this place on, as far as the file goes.
    Read(usize, usize),
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    let write = (0..40_usize, prop::collection::vec(any::<u8>(), 1..20));
    prop_oneof![
        6 => write.prop_map(|(offset, bytes)| Step::Do(Did::Write(offset, bytes))),
        2 => (0..50_usize).prop_map(|len| Step::Do(Did::SetLen(len))),
        2 => Just(Step::Sync),
        2 => any::<bool>().prop_map(Step::Fail),
        3 => (0..60_usize, 1..30_usize).prop_map(|(from, len)| Step::Read(from, len)),
        1 => Just(Step::Settle),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_above_sees_that_the_file_fails(steps in prop::collection::vec(step(), 1..60)) {
        let (file, retry) = pair();
        let (mut twin, mut whole) = (Vec::new(), true);
        for step in steps {
            match step {
                Step::Do(did) => {
                    match &did {
                        Did::Write(offset, bytes) => retry.write(*offset as u64, bytes),
                        Did::SetLen(len) => retry.set_len(*len as u64),
                    }.unwrap();
                    did.to(&mut twin);
                    whole &= !file.script().fails;
                }
                Step::Sync => {
                    retry.sync_data().unwrap();
                    whole &= !file.script().fails;
                    prop_assert!(!whole || file.script().synced == twin);
                }
                Step::Read(from, len) if from < twin.len() => {
                    let expected = &twin[from..twin.len().min(from + len)];
                    let mut found = vec![0; expected.len()];
                    retry.read(from as u64, &mut found).unwrap();
                    prop_assert_eq!(found, expected);
                }
                Step::Read(from, _) => {
                    retry.read(from as u64, &mut [0]).expect_err("that is beyond its end");
                }
                Step::Fail(fails) => file.script().fails = fails,
                Step::Settle => {
                    let was_whole = whole;
                    let settled = retry.settle();
                    whole |= settled.is_ok();
                    prop_assert_eq!(whole, was_whole || !file.script().fails);
                    prop_assert!(was_whole || !whole || file.script().synced == twin);
                }
            }
            prop_assert_eq!(retry.failure().is_none(), whole);
            prop_assert_eq!(&all(&retry), &twin);
        }
        file.script().fails = false;
        retry.settle().unwrap();
        retry.sync_data().unwrap();
        prop_assert_eq!(&file.script().synced, &twin);
    }
}
