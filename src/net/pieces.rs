//! [`Pieces`]: bytes of one send, in one slice or several.

use std::io::IoSlice;

/// Unsent rest of the bytes of one send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces<'a> {
    /// Rest of the current slice. Empty if no bytes are left.
    front: &'a [u8],
    /// If there are several slices: the slice that the front belongs to, and those after it.
    slices: &'a [IoSlice<'a>],
}

/// Bytes for one system call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Chunk<'a> {
    One(&'a [u8]),
    Several(&'a [IoSlice<'a>]),
}

/// Largest number of slices in one system call (`IOV_MAX`).
const MOST_SLICES: usize = 1024;

impl<'a> Pieces<'a> {
    pub(super) const NONE: Self = Self::one(&[]);

    pub(super) const fn one(bytes: &'a [u8]) -> Self {
        Self { front: bytes, slices: &[] }
    }

    pub(super) fn new(slices: &'a [IoSlice<'a>]) -> Self {
        let mut pieces = Self::NONE;
        pieces.go_to(slices);
        pieces
    }

    /// Makes the first slice that is not empty the front.
    fn go_to(&mut self, mut slices: &'a [IoSlice<'a>]) {
        while let [first, behind @ ..] = slices
            && first.is_empty()
        {
            slices = behind;
        }
        self.front = slices.first().map_or(&[], |first| first);
        self.slices = slices;
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.front.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.iter().map(<[u8]>::len).sum()
    }

    /// Iterates over the pieces that are left.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let behind = self.slices.iter().skip(1);
        std::iter::once(self.front).chain(behind.map(|slice| &**slice))
    }

    /// Returns the front, as much as one system call can send.
    pub(super) fn chunk(&self) -> Chunk<'a> {
        match self.slices {
            [first, _, ..] if first.len() == self.front.len() => {
                Chunk::Several(&self.slices[..self.slices.len().min(MOST_SLICES)])
            }
            _ => Chunk::One(self.front),
        }
    }

    /// Drops `count` bytes from the front.
    pub(super) fn consume(&mut self, mut count: usize) {
        while count >= self.front.len() && !self.front.is_empty() {
            count -= self.front.len();
            self.go_to(self.slices.get(1..).unwrap_or(&[]));
        }
        self.front = &self.front[count..];
    }
}

impl Chunk<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(bytes) => bytes.len(),
            Self::Several(slices) => slices.iter().map(|slice| slice.len()).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn left(pieces: &Pieces<'_>) -> Vec<u8> {
        pieces.iter().flatten().copied().collect()
    }

    proptest! {
        #[test]
        fn whatever_is_consumed_the_rest_is_left(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..5), 0..8),
            steps in proptest::collection::vec(0_usize..6, 0..12),
        ) {
            let all = parts.concat();
            let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let mut pieces = Pieces::new(&slices);
            let mut gone = 0;
            for step in steps {
                prop_assert_eq!(left(&pieces), &all[gone..]);
                prop_assert_eq!(pieces.len(), all.len() - gone);
                prop_assert_eq!(pieces.is_empty(), gone == all.len());
                let front = match pieces.chunk() {
                    Chunk::One(bytes) => bytes.to_vec(),
                    Chunk::Several(slices) => slices.iter().flat_map(|s| s.iter()).copied().collect(),
                };
                prop_assert_eq!(front.len(), pieces.chunk().len());
                prop_assert_eq!(front.is_empty(), pieces.is_empty());
                prop_assert!(all[gone..].starts_with(&front));
                let step = step.min(front.len());
                pieces.consume(step);
                gone += step;
            }
        }
    }

    #[test]
    fn one_slice_goes_alone_and_a_thousand_go_in_turns() {
        let slices = [IoSlice::new(b""), IoSlice::new(b"abc"), IoSlice::new(b"")];
        let pieces = Pieces::new(&slices[..2]);
        assert!(matches!(pieces.chunk(), Chunk::One(b"abc")), "{pieces:?}");
        assert!(Pieces::new(&slices[2..]).is_empty() && Pieces::NONE.is_empty());

        let many = vec![IoSlice::new(b"ab"); 2 * MOST_SLICES + 1];
        let mut pieces = Pieces::new(&many);
        for expected in [2 * MOST_SLICES, 2 * MOST_SLICES, 2] {
            assert_eq!(pieces.chunk().len(), expected);
            pieces.consume(expected);
        }
        assert!(pieces.is_empty());
    }
}
