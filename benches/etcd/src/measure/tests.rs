//! A store in memory stands for the servers.

use std::collections::BTreeMap;
use std::time::Instant;

use lab::drive::Tally;

use super::*;
use crate::load::{Ask, Op, key_bytes};

/// A store in memory. If `forgets` is not 0, it loses each write whose number is a multiple of it.
struct Twin {
    keys: BTreeMap<u64, (Vec<u8>, u64)>,
    revision: u64,
    forgets: u64,
}

impl Twin {
    fn new(forgets: u64) -> Self {
        Self { keys: BTreeMap::new(), revision: 0, forgets }
    }

    fn put(&mut self, key: u64, stamp: u64) {
        self.revision += 1;
        if self.forgets == 0 || !self.revision.is_multiple_of(self.forgets) {
            self.keys.insert(key, (value(key, stamp), self.revision));
        }
    }
}

impl Target for Twin {
    fn pid(&self) -> u32 {
        process::id()
    }

    async fn prepare(&mut self, _: usize) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    async fn run(
        &mut self,
        mut chains: Vec<Chain>,
        until: Until,
    ) -> Result<(Summary, Vec<Chain>), Box<dyn Error>> {
        let (begun, mut tally) = (Instant::now(), Tally::default());
        let goes_on = |done| match until {
            Until::Time(length) => done == 0 || begun.elapsed() < length,
            Until::Requests(all) => done < all,
        };
        while goes_on(tally.answers() + tally.failures()) {
            for chain in &mut chains {
                let (sent, ask) = (Instant::now(), chain.ask());
                let checked = match &ask {
                    Ask::Put { key, stamp } => {
                        self.put(*key, *stamp);
                        chain.wrote(&ask, self.revision)
                    }
                    Ask::Read(keys) => {
                        let pairs = self.keys.range(keys.clone());
                        let pairs: Vec<_> =
                            pairs.map(|(key, (value, _))| (key_bytes(*key), value)).collect();
                        chain.found(&ask, pairs.iter().map(|(key, value)| (&key[..], &value[..])))
                    }
                };
                match checked {
                    Ok(access) => tally.answered(access, sent),
                    Err(failure) => tally.failed(failure),
                }
            }
        }
        Ok((Summary::new(tally, begun.elapsed()), chains))
    }

    async fn fill(&mut self, keys: Range<u64>, stamp: u64) -> Result<(), Box<dyn Error>> {
        keys.for_each(|key| self.put(key, stamp));
        Ok(())
    }

    async fn filled(&mut self) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    async fn read(&mut self, key: u64) -> Result<Option<(Vec<u8>, u64)>, Box<dyn Error>> {
        Ok(self.keys.get(&key).cloned())
    }

    async fn flushes(&mut self) -> Result<u64, Box<dyn Error>> {
        Ok(self.revision)
    }
}

async fn loaded(twin: &mut Twin, op: Op) -> Window {
    let load = Load { op, clients: 3, keys: 1000 };
    if !op.writes() {
        fill(twin, load.keys).await.unwrap();
    }
    window(twin, load, 1, Until::Time(Duration::from_millis(20))).await.unwrap()
}

#[tokio::test]
async fn an_honest_store_has_nothing_wrong() {
    for op in [Op::Put, Op::PlainPut, Op::Get, Op::GetSerializable, Op::Range] {
        let window = loaded(&mut Twin::new(0), op).await;
        assert!(window.requests > 0);
        assert_eq!((window.errors, window.wrong), (0, 0), "{op:?}");
    }
}

#[tokio::test]
async fn a_store_that_forgets_is_found_out() {
    assert!(loaded(&mut Twin::new(2), Op::Put).await.wrong > 0);
    assert!(loaded(&mut Twin::new(2), Op::Range).await.wrong > 0);
}

#[tokio::test]
async fn windows_of_both_stand_side_by_side() {
    let (mut ours, mut other) = (Twin::new(0), Twin::new(0));
    let load = Load { op: Op::Put, clients: 1, keys: 1 };
    let until = Until::Requests(20);
    let pairs = pairs(Some(&mut ours), &mut other, load, 2, until, |_| {}).await.unwrap();
    assert_eq!(pairs.len(), 2);
    assert!(pairs.iter().all(|pair| pair.txn_kv.as_ref().unwrap().requests == 20));
}
