//! A forked child has its own copy of what `malloc` gave out, and far programs see neither's later doings.

use crosslane_shm::buffer::{
    Block, Kind, after_fork_in_child, after_fork_in_parent, alloc, before_fork, free, len_at, locate,
};
use crosslane_shm::far::FarBuffer;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const PAGE: usize = 4096;
const LEN: usize = 8 * PAGE;

fn byte(block: Block, page: usize) -> *mut u8 {
    assert!(page * PAGE < block.len);
    block.at.as_ptr().wrapping_add(page * PAGE)
}

fn set(block: Block, page: usize, value: u8) {
    // SAFETY: inside a block of ours.
    unsafe { byte(block, page).write_volatile(value) }
}

fn get(block: Block, page: usize) -> u8 {
    // SAFETY: inside a block of ours.
    unsafe { byte(block, page).read_volatile() }
}

/// Runs `child` in a forked process, which speaks with `parent` over a pair of sockets; whether it returned true.
fn forked(child: impl FnOnce(UnixStream) -> bool, parent: impl FnOnce(UnixStream)) -> bool {
    let (ours, theirs) = UnixStream::pair().unwrap();
    before_fork();
    // SAFETY: this test has no other threads that hold locks which the child needs.
    match unsafe { libc::fork() } {
        -1 => panic!("fork"),
        0 => {
            after_fork_in_child();
            drop(ours);
            let good = child(theirs);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!good)) }
        }
        pid => {
            after_fork_in_parent();
            drop(theirs);
            parent(ours);
            let mut status = 0;
            // SAFETY: our own child.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

#[test]
fn fork_separates_buffers_of_parent_child_and_far_program() {
    let block = alloc(LEN as u64, Kind::Malloc).unwrap();
    (0..8).for_each(|page| set(block, page, 1));
    let located = locate(block.at.as_ptr(), LEN).unwrap();
    let far = located.share(|fd| FarBuffer::map(fd, located.len, located.reach).unwrap()).unwrap();
    // Page 0 is touched in both before the other writes, page 1 in the parent only, 2 in the child only, 3 in none.
    let good = forked(
        |mut stream| {
            let mut right = get(block, 0) == 1;
            set(block, 2, 30);
            let _ = stream.write(b"x");
            let _ = stream.read(&mut [0]);
            right &= (get(block, 0), get(block, 1), get(block, 2), get(block, 3)) == (1, 1, 30, 1);
            set(block, 0, 31);
            right && free(block.at.as_ptr())
        },
        |mut stream| {
            set(block, 1, 20);
            stream.read_exact(&mut [0]).unwrap();
            assert_eq!((get(block, 0), get(block, 2), get(block, 3)), (1, 1, 1));
            set(block, 0, 21);
            set(block, 3, 22);
            stream.write_all(b"x").unwrap();
        },
    );
    assert!(good, "the child saw what its parent wrote");
    assert_eq!([0, 1, 2, 3].map(|page| get(block, page)), [21, 20, 1, 22]);
    let seen = [0, 1, 2, 3].map(|page| {
        let mut bytes = [0];
        far.copy_out(page * PAGE as u64, &mut bytes).unwrap();
        bytes[0]
    });
    assert_eq!(seen, [1; 4], "the far program sees what was there at the fork");
    assert!(far.is_gone() && locate(block.at.as_ptr(), 1).is_none(), "nothing new is sent from there");
    assert_eq!(len_at(block.at.as_ptr()), Some(LEN));
    assert!(free(block.at.as_ptr()));
    let fresh = alloc(LEN as u64, Kind::Malloc).unwrap();
    assert!(locate(fresh.at.as_ptr(), 1).is_some(), "there are buffers again");
    assert!(free(fresh.at.as_ptr()));

    a_child_names_its_buffers_otherwise();
    what_a_program_asked_for_by_name_is_the_childs_too();
}

fn a_child_names_its_buffers_otherwise() {
    let id = || {
        let block = alloc(PAGE as u64, Kind::Malloc).unwrap();
        let id = locate(block.at.as_ptr(), 1).unwrap().id.0;
        free(block.at.as_ptr());
        id
    };
    let mut theirs = [0; 8];
    let good = forked(
        |mut stream| stream.write_all(&id().to_ne_bytes()).is_ok(),
        |mut stream| stream.read_exact(&mut theirs).unwrap(),
    );
    assert!(good && u64::from_ne_bytes(theirs) != id());
}

fn what_a_program_asked_for_by_name_is_the_childs_too() {
    let block = alloc(PAGE as u64, Kind::Own).unwrap();
    let good = forked(
        |_| {
            set(block, 0, 5);
            true
        },
        drop,
    );
    assert!(good && get(block, 0) == 5);
    assert!(free(block.at.as_ptr()));
}
