//! Freeing addresses: each by one thread at a time, from the look at its file to its being free.

use std::net::IpAddr;
use std::sync::PoisonError;
use std::time::Instant;

use super::allocator::Holder;
use super::{Lease, Pool, State};
use crate::error::NetworkError;

/// One address that nobody else frees, until this is dropped.
struct Claim<'a> {
    pool: &'a Pool,
    address: IpAddr,
}

impl Pool {
    /// Frees all of these that their holders still have. Goes on after a failure.
    pub(super) fn release_all(&self, held: Vec<(IpAddr, Holder)>) -> Result<(), NetworkError> {
        let errors = held
            .into_iter()
            .filter_map(|(address, holder)| self.release_one(address, &holder).err());
        NetworkError::collected(errors.collect())
    }

    /// Takes back what was written of a lease that does not come about.
    pub(super) fn cancel(
        &self,
        lease: &Lease,
        written: impl Iterator<Item = IpAddr>,
        holder: &Holder,
    ) -> Result<(), NetworkError> {
        // Held until the addresses are free in memory too.
        let claims: Vec<_> = written
            .filter_map(|address| self.claim(address, holder))
            .collect();
        let errors = claims
            .iter()
            .filter_map(|claim| self.store.release(claim.address).err());
        let undone = NetworkError::collected(errors.collect());
        let mut state = self.state();
        for address in lease.ips() {
            // Who freed it meanwhile may have given it to another pod.
            if state.holder_of(address) == Some(holder) {
                state.cancel(address);
            }
        }
        drop(state);
        undone
    }

    fn release_one(&self, address: IpAddr, holder: &Holder) -> Result<(), NetworkError> {
        let Some(_claim) = self.claim(address, holder) else {
            return Ok(());
        };
        match self.store.read(address)? {
            // The reference plugin freed it, and gave it to another pod: the file is that pod's.
            Some(other) if other != *holder && other != Holder::default() => {
                self.state().adopt(address, other);
            }
            // The file goes first: an address is free for others only when nothing says that it
            // is taken. A file that stays keeps its address.
            _ => {
                self.store.release(address)?;
                self.forget(address);
            }
        }
        Ok(())
    }

    /// Waits until nobody else frees the address; `None` if it is not this holder's then. Otherwise
    /// the second of two who free it would unlink the file of the pod that has it next.
    fn claim(&self, address: IpAddr, holder: &Holder) -> Option<Claim<'_>> {
        let is_claimed = |state: &mut State| state.releasing.contains(&address);
        let waited = self.released.wait_while(self.state(), is_claimed);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.holder_of(address) != Some(holder) {
            return None;
        }
        state.releasing.insert(address);
        let pool = self;
        Some(Claim { pool, address })
    }

    pub(super) fn forget(&self, address: IpAddr) {
        let now = Instant::now();
        let mut state = self.state();
        state.strangers.remove(&address);
        for allocator in state.allocators_mut() {
            allocator.release(address, now);
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.pool.state().releasing.remove(&self.address);
        self.pool.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::thread;
    use std::time::Duration;

    use super::super::range::Range;
    use super::super::range_set::RangeSet;
    use super::*;

    /// Enough for two releases to overlap if nothing keeps them apart.
    const ROUNDS: usize = 300;

    fn holder(id: &str) -> Holder {
        Holder {
            container_id: id.to_owned(),
            ifname: "eth0".to_owned(),
        }
    }

    /// A network with a single address for pods.
    fn pool(dir: &Path) -> Pool {
        let subnet = "10.88.0.0/30".parse().unwrap();
        let range = Range::new(subnet, None, None, None).unwrap();
        Pool::open(dir, vec![vec![RangeSet::new(vec![range]).unwrap()]]).unwrap()
    }

    #[test]
    fn an_address_is_freed_by_one_thread_at_a_time_and_only_from_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let pool = pool(dir.path());
        let (old, new) = (holder("old"), holder("new"));
        let lease = pool.reserve(&old, 0, &[]).unwrap();
        let address = lease.ips().next().unwrap();
        assert!(pool.claim(address, &new).is_none());
        let first = pool.claim(address, &old).unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| pool.claim(address, &old).is_some());
            pool.store.release(address).unwrap();
            pool.forget(address);
            pool.reserve(&new, 0, &[]).unwrap();
            drop(first);
            assert!(!second.join().unwrap(), "it is another pod's by now");
        });
        assert_eq!(pool.store.read(address).unwrap(), Some(new));
    }

    #[test]
    fn releases_that_overlap_leave_the_next_pods_file_alone() {
        let dir = tempfile::tempdir().unwrap();
        let pool = pool(dir.path());
        let (old, new) = (holder("old"), holder("new"));
        for _ in 0..ROUNDS {
            pool.reserve(&old, 0, &[]).unwrap();
            let address = thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| pool.release(&old).unwrap());
                }
                loop {
                    match pool.reserve(&new, 0, &[]) {
                        Ok(lease) => break lease.ips().next().unwrap(),
                        Err(_) => thread::sleep(Duration::ZERO),
                    }
                }
            });
            assert_eq!(pool.store.read(address).unwrap(), Some(new.clone()));
            pool.release(&new).unwrap();
        }
    }
}
