//! The regions of a program, and who may do what with them.

use super::{Buffer, Denial, Error};
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crosslane_wire::access::Place;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// What a key gives the right to. Notifying needs none of these, only the key.
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

    /// Whether this is all that `needed` has.
    fn covers(self, needed: Self) -> bool {
        self.read >= needed.read && self.write >= needed.write && self.atomic >= needed.atomic
    }
}

/// A region of another program's memory, and the right to it: whoever has this value has the right, as long as the owner
/// does not take it back. A plain value, to be sent by whatever means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RemoteRegion {
    /// Its number with its owner.
    pub id: u32,
    /// The key.
    pub key: u64,
    /// Its length, bytes.
    pub len: u64,
}

impl RemoteRegion {
    pub(super) fn place(&self, offset: u64) -> Place {
        Place { region: self.id, key: self.key, offset }
    }
}

/// A region of this program's own memory. It is read and written here by the calls of [`Buffer`], which it gives access
/// to. When dropped, nobody else reaches it any more.
#[derive(Debug)]
pub struct Region {
    opened: Arc<Opened>,
    regions: Arc<Regions>,
}

/// All regions of one [`super::Memory`].
#[derive(Debug, Default)]
pub(super) struct Regions {
    opened: RwLock<HashMap<u32, Arc<Opened>>>,
    last: AtomicU32,
}

#[derive(Debug)]
struct Opened {
    number: u32,
    buffer: Arc<Buffer>,
    grants: RwLock<Vec<Arc<Grant>>>,
}

#[derive(Debug)]
struct Grant {
    key: u64,
    access: Access,
    withdrawn: AtomicBool,
}

/// The right to a place, as it was found when it was asked for.
#[derive(Debug)]
pub(super) struct Permit {
    buffer: Arc<Buffer>,
    grant: Arc<Grant>,
}

impl Region {
    /// A new key for this region.
    ///
    /// # Errors
    /// The kernel has no random numbers.
    pub fn share(&self, access: Access) -> Result<RemoteRegion, Error> {
        let grant = Grant { key: random()?, access, withdrawn: AtomicBool::new(false) };
        let remote = RemoteRegion { id: self.opened.number, key: grant.key, len: self.opened.buffer.len() };
        self.opened.grants.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(grant));
        Ok(remote)
    }

    /// Takes a key back. An operation that is under way ends with [`Denial::WrongKey`] or is executed as a whole, but for
    /// pieces of 64 KB.
    pub fn withdraw(&self, remote: &RemoteRegion) {
        let mut grants = self.opened.grants.write().unwrap_or_else(PoisonError::into_inner);
        grants.retain(|grant| {
            let stays = grant.key != remote.key;
            grant.withdrawn.fetch_or(!stays, Ordering::Release);
            stays
        });
    }

    /// Its number: what a [`super::Notice`] names.
    pub fn id(&self) -> u32 {
        self.opened.number
    }

    /// Its memory, to be the target of gets as well.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.opened.buffer
    }
}

impl Deref for Region {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        &self.opened.buffer
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.regions.opened.write().unwrap_or_else(PoisonError::into_inner).remove(&self.opened.number);
        let grants = self.opened.grants.read().unwrap_or_else(PoisonError::into_inner);
        grants.iter().for_each(|grant| grant.withdrawn.store(true, Ordering::Release));
    }
}

impl Regions {
    pub(super) fn register(regions: &Arc<Self>, len: u64) -> Result<Region, Error> {
        let buffer = Arc::new(Buffer::create(len)?);
        let mut all = regions.opened.write().unwrap_or_else(PoisonError::into_inner);
        let number = loop {
            let number = regions.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if !all.contains_key(&number) {
                break number;
            }
        };
        let opened = Arc::new(Opened { number, buffer, grants: RwLock::default() });
        all.insert(number, Arc::clone(&opened));
        Ok(Region { opened, regions: Arc::clone(regions) })
    }

    /// Whether a place may be accessed in this way; nothing is touched before this has said so.
    pub(super) fn permit(&self, place: Place, needed: Access) -> Result<Permit, Denial> {
        let all = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        let opened = all.get(&place.region).ok_or(Denial::UnknownRegion)?;
        let grants = opened.grants.read().unwrap_or_else(PoisonError::into_inner);
        let grant = grants.iter().find(|grant| grant.key == place.key).ok_or(Denial::WrongKey)?;
        if !grant.access.covers(needed) {
            return Err(Denial::NotPermitted);
        }
        Ok(Permit { buffer: Arc::clone(&opened.buffer), grant: Arc::clone(grant) })
    }
}

impl Permit {
    /// The memory, unless the right was taken back meanwhile.
    pub(super) fn buffer(&self) -> Result<&Buffer, Denial> {
        if self.grant.withdrawn.load(Ordering::Acquire) { Err(Denial::WrongKey) } else { Ok(&self.buffer) }
    }

    /// The same for a place of `len` bytes, which is checked.
    pub(super) fn range(self, offset: u64, len: u64) -> Result<Self, Denial> {
        self.buffer.check(offset, len).map_err(|_| Denial::Outside)?;
        Ok(self)
    }

    /// The same for an aligned word, which is checked.
    pub(super) fn word(self, offset: u64) -> Result<Self, Denial> {
        match self.buffer.check_word(offset) {
            Ok(()) => Ok(self),
            Err(super::BadPlace::Misaligned(_)) => Err(Denial::Misaligned),
            Err(super::BadPlace::Outside { .. }) => Err(Denial::Outside),
        }
    }
}

fn random() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    let mut done = 0;
    while done < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(crate::native::Error::System(errno).into()),
        }
    }
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(regions: &Regions, place: Place, needed: Access) -> Option<Denial> {
        regions.permit(place, needed).err()
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
        let permit = regions.permit(all.place(0), Access::WRITE).unwrap();
        region.withdraw(&all);
        assert_eq!(permit.buffer().err(), Some(Denial::WrongKey));
        assert_eq!(why(&regions, all.place(0), Access::READ), Some(Denial::WrongKey));
        assert_eq!(why(&regions, reader.place(0), Access::READ), None);
    }

    #[test]
    fn a_dropped_region_is_unknown_and_its_permits_are_void() {
        let regions = Arc::new(Regions::default());
        let region = Regions::register(&regions, 64).unwrap();
        let remote = region.share(Access::ALL).unwrap();
        let permit = regions.permit(remote.place(0), Access::ALL).unwrap();
        drop(region);
        assert_eq!(permit.buffer().err(), Some(Denial::WrongKey));
        assert_eq!(why(&regions, remote.place(0), Access::READ), Some(Denial::UnknownRegion));
    }
}
