//! Division of a handler's capacity among its tools and servers.
//!
//! Half of the capacity is reserved: each share gets one permit of it, and the rest is divided by weight.
//! The other half is common, for those that arrive first. A share that hangs can therefore use up the
//! common half, but never the permits of the others, no matter how many hang.
//!
//! With more shares than half of the capacity, up to three quarters are reserved. With even more, shares
//! without a running call compete for the reserved permits.

/// The largest capacity that is divided; a larger one counts as this.
const MAX_CAPACITY: usize = u32::MAX as usize;

/// Capacity, divided among shares.
#[derive(Debug)]
pub(super) struct Shares {
    capacity: usize,
    /// The part of the capacity that is reserved.
    reserve: usize,
    shares: Vec<Share>,
    used: usize,
    /// The part of `used` beyond the reserved permits.
    common_used: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Share {
    /// Zero while the share has no tools. Then nothing is reserved for it.
    weight: u16,
    reserved: usize,
    used: usize,
}

impl Share {
    fn common_used(&self) -> usize {
        self.used.saturating_sub(self.reserved)
    }
}

impl Shares {
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.min(MAX_CAPACITY);
        Self { capacity, reserve: 0, shares: Vec::new(), used: 0, common_used: 0 }
    }

    /// Sets the weights of all shares; those beyond the last get zero.
    pub(super) fn set_weights(&mut self, weights: &[u16]) {
        let count = weights.len().max(self.shares.len());
        self.shares.resize(count, Share::default());
        let active = weights.iter().filter(|weight| **weight > 0).count();
        let total: usize = weights.iter().map(|weight| usize::from(*weight)).sum();
        let half = self.capacity / 2;
        self.reserve = half.max(active.min(self.capacity * 3 / 4));
        let divided = self.reserve.saturating_sub(active);
        for (index, share) in self.shares.iter_mut().enumerate() {
            share.weight = weights.get(index).copied().unwrap_or_default();
            let weight = usize::from(share.weight);
            share.reserved = match weight {
                0 => 0,
                _ if self.reserve == 0 => 0,
                _ => 1 + divided * weight / total,
            };
        }
        self.common_used = self.shares.iter().map(Share::common_used).sum();
    }

    /// Returns whether the share may use one more permit.
    pub(super) fn has_capacity(&self, share: usize) -> bool {
        let Share { used, reserved, .. } = self.shares[share];
        self.used < self.capacity
            && (used < reserved || self.common_used < self.capacity - self.reserve)
    }

    pub(super) fn take(&mut self, share: usize) {
        let share = &mut self.shares[share];
        self.common_used -= share.common_used();
        share.used += 1;
        self.common_used += share.common_used();
        self.used += 1;
    }

    pub(super) fn give_back(&mut self, share: usize) {
        let share = &mut self.shares[share];
        self.common_used -= share.common_used();
        share.used -= 1;
        self.common_used += share.common_used();
        self.used -= 1;
    }

    /// Returns the number of permits in use.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Returns the permits that are reserved for a share.
    #[cfg(test)]
    pub(super) fn reserved(&self, share: usize) -> usize {
        self.shares[share].reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(capacity: usize, weights: &[u16]) -> Shares {
        let mut shares = Shares::new(capacity);
        shares.set_weights(weights);
        shares
    }

    /// Takes permits of a share until it may have no more, and returns their number.
    fn exhaust(shares: &mut Shares, share: usize) -> usize {
        let mut taken = 0;
        while shares.has_capacity(share) {
            shares.take(share);
            taken += 1;
        }
        taken
    }

    #[test]
    fn each_share_keeps_what_is_reserved_for_it() {
        for (count, hung, expected) in
            [(3, 2, 10), (6, 5, 5), (21, 20, 1), (32, 31, 1), (48, 47, 1)]
        {
            let mut shares = shares(64, &vec![1; count]);
            for share in 0..hung {
                assert!(exhaust(&mut shares, share) >= expected);
            }
            let left: Vec<_> = (hung..count).map(|share| exhaust(&mut shares, share)).collect();
            assert!(left.iter().all(|left| *left >= expected), "{hung} of {count}: {left:?}");
        }
    }

    #[test]
    fn weights_divide_the_reserved_half() {
        let shares = shares(64, &[1, 3, 0, 1]);
        let reserved: Vec<_> = (0..4).map(|share| shares.reserved(share)).collect();
        assert_eq!(reserved, [6, 18, 0, 6]);
    }

    #[test]
    fn single_share_may_use_everything() {
        for capacity in [1, 2, 3, 64] {
            assert_eq!(exhaust(&mut shares(capacity, &[1]), 0), capacity);
        }
    }

    #[test]
    fn excess_shares_compete_for_reserved_permits() {
        let mut shares = shares(8, &[1; 20]);
        let first = exhaust(&mut shares, 0);
        assert_eq!(first, 3, "one permit of its own, and the common quarter");
        let served = (1..20).filter(|share| exhaust(&mut shares, *share) > 0).count();
        assert_eq!(served, 5);
        assert_eq!(shares.used(), 8);
    }

    #[test]
    fn new_weights_apply_to_used_permits() {
        let mut shares = shares(8, &[1]);
        assert_eq!(exhaust(&mut shares, 0), 8);
        shares.set_weights(&[1, 1]);
        assert!(!shares.has_capacity(1), "all permits are in use");
        for _ in 0..2 {
            shares.give_back(0);
        }
        assert!(shares.has_capacity(1));
        assert!(!shares.has_capacity(0), "the common half is used up");
        shares.set_weights(&[1]);
        assert!(shares.has_capacity(0));
        while shares.used() > 0 {
            shares.give_back(0);
        }
        assert_eq!(exhaust(&mut shares, 0), 8);
    }

    #[test]
    fn unlimited_capacity_is_divided_without_overflow() {
        let shares = shares(usize::MAX, &[u16::MAX; 100]);
        assert!((0..100).all(|share| shares.has_capacity(share)));
    }
}
