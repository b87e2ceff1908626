//! [`Credit`]: bytes of rows that a client still takes of one result.

/// Remaining credit. One row or chunk may overdraw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Credit {
    left: i64,
    /// Upper bound of `left`. Clients offer a whole window before the last one is used up, so
    /// unbounded credit would grow with each offer.
    largest_grant: i64,
}

/// Offers that were not added to the credit yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offers {
    sum: i64,
    largest: i64,
}

impl Credit {
    /// Credit at the begin of a request.
    pub(super) const fn new(bytes: i64) -> Self {
        Self { left: bytes, largest_grant: bytes }
    }

    /// Returns true if no further row may be written.
    pub(super) const fn is_spent(&self) -> bool {
        self.left < 0
    }

    pub(super) fn charge(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub_unsigned(bytes as u64);
    }

    /// Adds offers. Returns false if they are empty.
    pub(super) fn add(&mut self, offers: Offers) -> bool {
        self.largest_grant = self.largest_grant.max(offers.largest);
        self.left = self.left.saturating_add(offers.sum).min(self.largest_grant);
        offers.sum > 0
    }
}

impl Offers {
    pub(super) fn add(&mut self, bytes: i64) {
        self.sum = self.sum.saturating_add(bytes);
        self.largest = self.largest.max(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(all: &[i64]) -> Offers {
        let mut offers = Offers::default();
        all.iter().for_each(|&bytes| offers.add(bytes));
        offers
    }

    #[test]
    fn it_is_spent_below_zero_and_what_was_overdrawn_is_paid_first() {
        let mut credit = Credit::new(0);
        assert!(!credit.is_spent());
        credit.charge(100);
        assert!(credit.is_spent());
        assert!(credit.add(offers(&[60])));
        assert!(credit.is_spent());
        assert!(credit.add(offers(&[40])));
        assert!(!credit.is_spent());
        assert!(!credit.add(Offers::default()));
    }

    #[test]
    fn early_offers_never_add_up_to_more_than_one() {
        let mut credit = Credit::new(1000);
        for _ in 0..100 {
            credit.charge(810);
            credit.add(offers(&[1000]));
            assert_eq!(credit, Credit::new(1000));
        }
        credit.add(offers(&[700, 4000, 500]));
        assert_eq!(credit, Credit::new(4000));
    }

    #[test]
    fn huge_numbers_do_not_wrap() {
        let mut credit = Credit::new(i64::MAX);
        credit.add(offers(&[i64::MAX, i64::MAX]));
        assert_eq!(credit, Credit::new(i64::MAX));
        credit.charge(usize::MAX);
        credit.charge(usize::MAX);
        assert!(credit.is_spent());
    }
}
