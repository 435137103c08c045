//! Buffers: what others may do with them, and what becomes of them.

use crosslane_shm::buffer::{
    Buffer, Kind, Located, OpenBuffer, alloc, free, len_at, locate, next_given_back,
};
use crosslane_shm::far::CopyError;
use crosslane_shm::far::{FarBuffer, check_buffer};
use crosslane_shm::mem::new_segment;
use crosslane_shm::shared_bytes::BadPlace;
use crosslane_wire::Reach;
use crosslane_wire::buffer::{LANDINGS, LEN_MAX, memory_len};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{PoisonError, RwLock};

const PAGE: usize = 4096;
/// The table of buffers is the process's: the test that fills it is alone.
static TABLE: RwLock<()> = RwLock::new(());

fn among_others() -> impl Drop {
    TABLE.read().unwrap_or_else(PoisonError::into_inner)
}

fn descriptor(located: &Located) -> OwnedFd {
    located.share(|fd| fd.try_clone_to_owned().unwrap()).unwrap()
}

fn far(located: &Located) -> FarBuffer {
    FarBuffer::map(descriptor(located), located.len, located.reach).unwrap()
}

#[test]
fn buffer_for_loads_shows_what_its_owner_writes() {
    let _others = among_others();
    let mut buffer = Buffer::new(100_000).unwrap();
    buffer[70_000..70_005].copy_from_slice(b"hello");
    let located = crosslane_shm::buffer::locate_bytes(&buffer[70_000..70_005]).unwrap();
    assert_eq!((located.offset, located.len, located.reach), (70_000, 25 * PAGE as u64, Reach::Load));
    let far = far(&located);
    let mut bytes = [0; 5];
    far.copy_out(located.offset, &mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    buffer[70_000] = b'j';
    far.copy_out(located.offset, &mut bytes).unwrap();
    assert_eq!(&bytes, b"jello");
    assert!(far.copy_in(0, b"x").is_err(), "it is for loads");
}

#[test]
fn buffer_for_loads_is_writable_by_its_owner_only() {
    let _others = among_others();
    let buffer = Buffer::new(PAGE).unwrap();
    let fd = descriptor(&crosslane_shm::buffer::locate_bytes(&buffer).unwrap());
    let reopened = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .unwrap();
    let map = |protection| {
        // SAFETY: a fresh mapping of the kernel's choice, never touched.
        unsafe { mmap(std::ptr::null_mut(), PAGE, protection, MapFlags::SHARED, &reopened, 0) }
    };
    assert_eq!(map(ProtFlags::READ | ProtFlags::WRITE), Err(Errno::PERM));
    let read = map(ProtFlags::READ).unwrap();
    // SAFETY: our own mapping.
    assert!(unsafe { mprotect(read, PAGE, MprotectFlags::READ | MprotectFlags::WRITE) }.is_err());
    // SAFETY: our own mapping, not used any more.
    unsafe { munmap(read, PAGE) }.unwrap();
    assert_eq!(rustix::io::pwrite(&reopened, b"x", 0), Err(Errno::PERM));
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&reopened, hole, 0, PAGE as u64), Err(Errno::PERM));
    assert!(rustix::fs::ftruncate(&reopened, 0).is_err());
    assert_eq!(rustix::fs::fcntl_getfl(&reopened).unwrap() & OFlags::RWMODE, OFlags::RDWR);
}

#[test]
fn buffer_open_takes_far_stores_until_it_is_dropped() {
    let _others = among_others();
    let buffer = OpenBuffer::new(3 * PAGE).unwrap();
    let located = buffer.locate(PAGE, PAGE).unwrap();
    let far = far(&located);
    far.copy_in(located.offset + 8, b"hello").unwrap();
    let mut bytes = [0; 5];
    buffer.read(PAGE + 8, &mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    let place = buffer.pointer();
    assert!(!far.is_gone());
    drop(buffer);
    assert!(far.is_gone());
    let mut others: Vec<_> = (0..40).map(|_| Buffer::new(3 * PAGE).unwrap()).collect();
    others.iter_mut().for_each(|other| other.fill(7));
    far.copy_in(0, &[9; 3 * PAGE]).unwrap();
    assert!(others.iter().all(|other| other.iter().all(|byte| *byte == 7)), "a late store reached {place:?}");
}

#[test]
fn buffer_open_has_a_line_for_each_offer() {
    let _others = among_others();
    let buffer = OpenBuffer::new(4096).unwrap();
    let mut lines: Vec<_> = core::iter::from_fn(|| buffer.landing()).take(100).collect();
    assert_eq!(lines.len(), LANDINGS as usize);
    let far = far(&buffer.locate(0, 4096).unwrap());
    for line in &lines {
        far.land(line.number(), 1000 + u64::from(line.number()), 7).unwrap();
    }
    for line in &lines {
        assert_eq!((line.word(), line.seal()), (1000 + u64::from(line.number()), 7));
    }
    let freed = lines.swap_remove(17).number();
    assert_eq!(buffer.landing().map(|line| line.number()), Some(freed));
    assert!(far.land(LANDINGS, 1, 1).is_err() && far.land(u32::MAX, 1, 1).is_err() && !far.is_gone());
    let loads = Buffer::new(4096).unwrap();
    let place = crosslane_shm::buffer::locate_bytes(&loads).unwrap();
    // SAFETY: the buffer is freed at the end.
    assert!(unsafe { place.landing() }.is_none());
    assert!(FarBuffer::map(descriptor(&place), place.len, place.reach).unwrap().land(0, 1, 1).is_err());
}

#[test]
fn buffer_places_outside_are_refused() {
    let _others = among_others();
    let buffer = OpenBuffer::new(PAGE).unwrap();
    let far = far(&buffer.locate(0, PAGE).unwrap());
    let (whole, mut bytes) = (PAGE as u64, [0; 2]);
    let outside = |offset, len| Err(CopyError::Place(BadPlace::Outside { offset, len, region: whole }));
    assert_eq!(far.copy_out(whole - 1, &mut bytes), outside(whole - 1, 2));
    assert_eq!(far.copy_out(u64::MAX, &mut bytes), outside(u64::MAX, 2));
    assert_eq!(far.copy_in(whole, &bytes), outside(whole, 2));
    assert_eq!(far.copy_in(whole, &[]), Ok(()));
    assert!(buffer.read(PAGE - 1, &mut bytes).is_err() && buffer.write(usize::MAX, &bytes).is_err());
    assert!(buffer.locate(PAGE, 1).is_err());
    let end = buffer.pointer().as_ptr().wrapping_add(PAGE);
    assert!(locate(end, 1).is_none(), "the page behind it is no part of it");
    assert!(locate([0_u8; 4].as_ptr(), 4).is_none());
}

#[test]
fn buffer_that_another_program_describes_is_checked() {
    let _others = among_others();
    let buffer = Buffer::new(2 * PAGE).unwrap();
    let fd = descriptor(&crosslane_shm::buffer::locate_bytes(&buffer).unwrap());
    let len = 2 * PAGE as u64;
    assert!(check_buffer(&fd, len, Reach::Load).is_ok());
    for lie in [0, 1, PAGE as u64, len + 1, 3 * PAGE as u64, LEN_MAX + PAGE as u64, u64::MAX] {
        assert!(check_buffer(&fd, lie, Reach::Load).is_err(), "{lie}");
    }
    assert!(check_buffer(&fd, len, Reach::Store).is_err(), "it is sealed against stores");
    let open = new_segment("test", memory_len(len)).unwrap();
    assert!(check_buffer(&open, len, Reach::Store).is_ok());
    assert!(check_buffer(&open, len, Reach::Load).is_err(), "others might write it");
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    assert!(check_buffer(&pipe, len, Reach::Store).is_err());
}

#[test]
fn buffer_memory_is_reused_only_if_never_shared() {
    let _alone = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let mut kept: Vec<(FarBuffer, u8)> = Vec::new();
    for round in 0..20_u8 {
        let block = alloc(20 * PAGE as u64, Kind::Malloc).unwrap();
        // SAFETY: the block is ours.
        unsafe { block.at.as_ptr().write_bytes(round, block.len) };
        if round % 2 == 0 {
            kept.push((far(&locate(block.at.as_ptr(), 1).unwrap()), round));
        }
        assert!(free(block.at.as_ptr()) && !free(block.at.as_ptr()));
        for (far, wrote) in &kept {
            let mut bytes = [0; PAGE];
            far.copy_out(PAGE as u64, &mut bytes).unwrap();
            assert_eq!(bytes, [*wrote; PAGE]);
            assert!(far.is_gone());
        }
    }
    assert!(std::iter::from_fn(next_given_back).count() >= kept.len().min(1));
    let block = alloc(30 * PAGE as u64, Kind::Malloc).unwrap();
    free(block.at.as_ptr());
    let again = (0..10).find_map(|_| {
        let block = alloc(30 * PAGE as u64, Kind::Malloc).ok()?;
        let again = !block.zeroed;
        free(block.at.as_ptr());
        again.then_some(())
    });
    assert!(again.is_some(), "what nobody else had was made anew each time");
}

#[test]
fn buffer_count_and_length_are_bounded() {
    let _alone = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    assert!(Buffer::new(0).is_err());
    assert!(Buffer::new(usize::MAX).is_err());
    let most = usize::try_from(LEN_MAX).unwrap();
    assert!(Buffer::new(most + 1).is_err());
    let largest = Buffer::new(most).unwrap();
    assert_eq!(len_at(largest.pointer().as_ptr()), Some(most));
    let many: Vec<_> = std::iter::from_fn(|| alloc(PAGE as u64, Kind::Malloc).ok()).take(1000).collect();
    assert!(many.len() <= 256);
    for block in &many {
        assert!(free(block.at.as_ptr()));
    }
    assert!(len_at(many[0].at.as_ptr()).is_none());
}

#[test]
fn buffer_alloc_and_free_run_in_many_threads() {
    let _others = among_others();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            scope.spawn(move || {
                for round in 0..200 {
                    let Ok(block) = alloc((1 + round % 7) * PAGE as u64, Kind::Malloc) else { continue };
                    // SAFETY: the block is ours.
                    let bytes = unsafe { core::slice::from_raw_parts_mut(block.at.as_ptr(), block.len) };
                    bytes.fill(thread);
                    std::thread::yield_now();
                    assert!(bytes.iter().all(|byte| *byte == thread), "given to two");
                    assert!(free(block.at.as_ptr()));
                }
            });
        }
    });
}
