//! The regions of a program, and the access rights to them.

use super::{BadPlace, Error, SharedBytes};
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};
use crosslane_wire::access::{Denial, Place};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

/// Access rights of a key. To notify, any key is sufficient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// `get`.
    pub read: bool,
    /// `put`.
    pub write: bool,
    /// `fetch_add`, `compare_swap`.
    pub atomic: bool,
}

impl Access {
    /// Everything.
    pub const ALL: Self = Self { read: true, write: true, atomic: true };
    /// `get` only.
    pub const READ: Self = Self { read: true, write: false, atomic: false };
    /// `put` only.
    pub const WRITE: Self = Self { read: false, write: true, atomic: false };
    /// `fetch_add` and `compare_swap` only.
    pub const ATOMIC: Self = Self { read: false, write: false, atomic: true };

    /// Whether this includes all rights of `needed`.
    fn covers(self, needed: Self) -> bool {
        self.read >= needed.read && self.write >= needed.write && self.atomic >= needed.atomic
    }
}

/// A region of another program's memory, with a right to access it: any program that has this value has the right, until
/// the owner withdraws the key. A plain value, to be sent by any means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RemoteRegion {
    /// The region's number at its owner.
    pub id: u32,
    /// The key.
    pub key: u64,
    /// Its length, bytes.
    pub len: u64,
}

impl RemoteRegion {
    pub(crate) fn place(&self, offset: u64) -> Place {
        Place { region: self.id, key: self.key, offset }
    }
}

/// A region of this program's own memory, read and written here by the calls of [`SharedBytes`], to which it derefs. Once
/// it is dropped, no other program can access the memory.
#[derive(Debug)]
pub struct Region {
    opened: Arc<Opened>,
    regions: Arc<Regions>,
}

/// All regions of one [`super::Memory`].
#[derive(Debug, Default)]
pub(super) struct Regions {
    opened: RwLock<BTreeMap<u32, Arc<Opened>>>,
    last: AtomicU32,
}

/// A region, as the agent accesses it.
#[derive(Debug)]
pub(super) struct Opened {
    number: u32,
    bytes: Arc<SharedBytes>,
    /// Held by the agent while it accesses the memory, so that a withdrawn key is no longer in use.
    grants: RwLock<Vec<Grant>>,
}

#[derive(Debug)]
struct Grant {
    key: u64,
    access: Access,
}

impl Region {
    /// A new key for this region.
    ///
    /// # Errors
    /// The kernel has no random numbers.
    pub fn share(&self, access: Access) -> Result<RemoteRegion, Error> {
        let key = random()?;
        self.opened.grants().push(Grant { key, access });
        Ok(RemoteRegion { id: self.opened.number, key, len: self.opened.bytes.len() })
    }

    /// Withdraws a key: after this returns, no load or store uses it. An operation under way ends with
    /// [`Denial::WrongKey`] after one of its pieces of 64 KB, or was finished before.
    pub fn withdraw(&self, remote: &RemoteRegion) {
        self.opened.grants().retain(|grant| grant.key != remote.key);
    }

    /// The region's number, which a [`super::Notice`] contains.
    pub fn id(&self) -> u32 {
        self.opened.number
    }

    /// The region's memory, which may be the target of gets as well.
    pub fn bytes(&self) -> &Arc<SharedBytes> {
        &self.opened.bytes
    }
}

impl Deref for Region {
    type Target = SharedBytes;

    fn deref(&self) -> &SharedBytes {
        &self.opened.bytes
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.regions.opened.write().unwrap_or_else(PoisonError::into_inner).remove(&self.opened.number);
        self.opened.grants().clear();
    }
}

impl Regions {
    pub(super) fn register(regions: &Arc<Self>, len: u64) -> Result<Region, Error> {
        let bytes = Arc::new(SharedBytes::create(len)?);
        let mut all = regions.opened.write().unwrap_or_else(PoisonError::into_inner);
        let number = loop {
            let number = regions.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if !all.contains_key(&number) {
                break number;
            }
        };
        let opened = Arc::new(Opened { number, bytes, grants: RwLock::default() });
        all.insert(number, Arc::clone(&opened));
        Ok(Region { opened, regions: Arc::clone(regions) })
    }

    /// The region with this number.
    pub(super) fn find(&self, number: u32) -> Result<Arc<Opened>, Denial> {
        let all = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        all.get(&number).map(Arc::clone).ok_or(Denial::UnknownRegion)
    }

    /// As [`Opened::access`] to the region of the place.
    pub(super) fn access<T>(
        &self,
        place: Place,
        needed: Access,
        work: impl FnOnce(&SharedBytes) -> Result<T, BadPlace>,
    ) -> Result<T, Denial> {
        self.find(place.region)?.access(place, needed, work)
    }
}

impl Opened {
    /// Accesses the memory, if the key of `place` gives the right `needed`: checks that first, and keeps the key from
    /// being withdrawn meanwhile. `work` checks the place.
    pub(super) fn access<T>(
        &self,
        place: Place,
        needed: Access,
        work: impl FnOnce(&SharedBytes) -> Result<T, BadPlace>,
    ) -> Result<T, Denial> {
        let grants = self.grants.read().unwrap_or_else(PoisonError::into_inner);
        let grant = grants.iter().find(|grant| grant.key == place.key).ok_or(Denial::WrongKey)?;
        if !grant.access.covers(needed) {
            return Err(Denial::NotPermitted);
        }
        work(&self.bytes).map_err(|bad| match bad {
            BadPlace::Outside { .. } => Denial::Outside,
            BadPlace::Misaligned(_) => Denial::Misaligned,
        })
    }

    /// The keys, to be changed; no thread accesses the memory meanwhile.
    fn grants(&self) -> RwLockWriteGuard<'_, Vec<Grant>> {
        self.grants.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn random() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    let mut done = 0;
    while done < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(crate::error::Error::System(errno).into()),
        }
    }
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicBool;
    use std::sync::Barrier;
    use std::time::Duration;

    fn why(regions: &Regions, place: Place, needed: Access) -> Option<Denial> {
        regions.access(place, needed, |_| Ok(())).err()
    }

    #[test]
    fn keys_give_what_they_were_made_for_until_they_are_taken_back() {
        let regions = Arc::new(Regions::default());
        let region = Regions::register(&regions, 64).unwrap();
        let (reader, all) = (region.share(Access::READ).unwrap(), region.share(Access::ALL).unwrap());
        assert_ne!(reader.key, all.key);
        assert_eq!(why(&regions, reader.place(0), Access::READ), None);
        for needed in [Access::WRITE, Access::ATOMIC, Access::ALL] {
            assert_eq!(why(&regions, reader.place(0), needed), Some(Denial::NotPermitted));
            assert_eq!(why(&regions, all.place(0), needed), None);
        }
        let wrong = Place { key: reader.key ^ 1, ..reader.place(0) };
        assert_eq!(why(&regions, wrong, Access::READ), Some(Denial::WrongKey));
        region.withdraw(&all);
        assert_eq!(why(&regions, all.place(0), Access::READ), Some(Denial::WrongKey));
        assert_eq!(why(&regions, reader.place(0), Access::READ), None);
        drop(region);
        assert_eq!(why(&regions, reader.place(0), Access::READ), Some(Denial::UnknownRegion));
    }

    /// A key that is withdrawn is not in use any more, not even by an access under way.
    #[test]
    fn taking_a_key_back_waits_for_the_access_that_is_under_way() {
        let regions = Arc::new(Regions::default());
        let region = Regions::register(&regions, 64).unwrap();
        let remote = region.share(Access::ALL).unwrap();
        let (begun, over) = (Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let access = regions.access(remote.place(0), Access::WRITE, |_| {
                    begun.wait();
                    std::thread::sleep(Duration::from_millis(50));
                    over.store(true, Ordering::SeqCst);
                    Ok(())
                });
                assert_eq!(access, Ok(()));
            });
            begun.wait();
            region.withdraw(&remote);
            assert!(over.load(Ordering::SeqCst));
        });
    }
}
