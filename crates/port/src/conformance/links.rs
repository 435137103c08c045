//! Lives of the link.

use super::Cable;
use super::registers::settle;
use super::rig::{Rig, WINDOW, pages};
use crate::{Port, PortError};
use crosslane_shm::{Load, Store};
use crosslane_wire::scratchpad::{DOORBELL_SETUP, MAGIC, Setup, WORDS};
use crosslane_wire::{Epoch, HostId, PROTOCOL_VERSION, SegmentRange};
use std::os::fd::AsFd;

pub(super) fn comes_up<C: Cable>(rig: &mut Rig<C>) {
    assert!(!rig.cable.a().is_up() && !rig.cable.b().is_up(), "up before it was reported");
    assert!(matches!(rig.cable.a().map_inbound(0, pages(0, 1)), Err(PortError::Down)));
    assert!(matches!(rig.cable.b().map_outbound(0, pages(0, 1)), Err(PortError::Down)));
    rig.until("both sides reported it", |rig| rig.a.ups == 1 && rig.b.ups == 1);
    settle(rig);
    assert_eq!((rig.a.ups, rig.a.downs.len(), rig.b.ups, rig.b.downs.len()), (1, 0, 1, 0));
    assert!(rig.cable.a().is_up() && rig.cable.b().is_up());
    assert_eq!((rig.cable.a().down_reason(), rig.cable.b().down_reason()), (None, None));
}

pub(super) fn death_and_return<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    assert_eq!(agree(rig, 1, 1), Epoch(1));
    rig.cable.a().map_inbound(0, pages(0, 8)).expect("maps its own");
    rig.kill_b();
    assert_eq!((rig.a.ups, rig.a.downs.len()), (0, 1));
    assert!(rig.cable.a().down_reason().is_some());
    // All of it is refused or lost, and nothing panics.
    let port = rig.cable.a();
    port.write_peer_scratchpad(0, 1);
    port.ring_peer_doorbell(u32::MAX);
    port.mask_doorbells(2);
    port.unmask_doorbells(2);
    port.free_inbound(0, pages(0, 8));
    let (waker, _other) = rustix::pipe::pipe().expect("pipe");
    assert!(matches!(port.export_waker(waker.as_fd(), 1), Err(PortError::Down | PortError::Unsupported(_))));
    assert!(matches!(port.import_waker(1, 1), Err(PortError::Down)));
    assert!(matches!(port.map_inbound(0, pages(0, 8)), Err(PortError::Down)));
    assert!(matches!(port.map_outbound(0, pages(0, 8)), Err(PortError::Down)));
    rig.revive_b();
    // Side B has forgotten its epoch; the larger proposal counts.
    assert_eq!(agree(rig, 2, 1), Epoch(2));
    a_word_arrives(rig, 0, pages(0, 8));
}

pub(super) fn old_views<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    let range = pages(0, 1);
    rig.cable.b().map_inbound(0, range).expect("maps its own");
    let old = rig.cable.a().map_outbound(0, range).expect("maps the peer's");
    rig.kill_b();
    old.write(0, &[0xff; 4096]);
    old.store_fence();
    rig.revive_b();
    assert!(
        matches!(rig.cable.a().map_outbound(0, range), Err(PortError::NotThere)),
        "an old segment is there"
    );
    let memory = rig.cable.b().map_inbound(0, range).expect("maps its own");
    old.write(0, &[0xff; 4096]);
    old.store_fence();
    settle(rig);
    assert_eq!(memory.load_u64(0), 0, "an old view reaches new memory");
}

pub(super) fn off_and_on<C: Cable>(rig: &mut Rig<C>) {
    for a in [true, false] {
        rig.up();
        switch(rig, a, false);
        switch(rig, a, false);
        rig.until("both sides saw the link go", |rig| !rig.cable.a().is_up() && !rig.cable.b().is_up());
        assert_eq!((rig.a.downs.len(), rig.b.downs.len()), (1, 1));
        for _ in 0..3 {
            settle(rig);
        }
        assert_eq!((rig.a.ups, rig.b.ups), (0, 0), "a link that is off came up");
        assert!(rig.cable.a().down_reason().is_some() && rig.cable.b().down_reason().is_some());
        switch(rig, a, true);
        switch(rig, a, true);
    }
    rig.up();
    a_word_arrives(rig, 0, pages(0, 4));
}

fn switch<C: Cable>(rig: &mut Rig<C>, a: bool, on: bool) {
    if a { rig.cable.a().set_link(on) } else { rig.cable.b().set_link(on) }
}

pub(super) fn rubbish<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    let victim = rig.cable.a().map_inbound(0, pages(0, 4)).expect("maps its own");
    rig.cable.rubbish_from_b();
    super::rig::set_windows(rig.cable.b());
    settle(rig);
    rig.up();
    let mut bytes = [0; 4096];
    victim.read(0, &mut bytes);
    // The port still works, with the same peer or the next one.
    settle(rig);
    rig.up();
    a_word_arrives(rig, 1, pages(0, 4));
    rig.b.bells.clear();
    rig.cable.a().ring_peer_doorbell(4);
    rig.until("the bell is reported", |rig| rig.b.bits() & 4 != 0);
    rig.a.bells.clear();
    rig.cable.b().ring_peer_doorbell(4);
    rig.until("the bell is reported", |rig| rig.a.bits() & 4 != 0);
}

pub(super) fn many_lives<C: Cable>(rig: &mut Rig<C>) {
    rig.up();
    for _ in 0..6 {
        let views: Vec<_> = (0..8)
            .map(|segment| {
                rig.cable.a().map_inbound(0, pages(segment, 1)).expect("maps its own");
                rig.cable.b().map_outbound(0, pages(segment, 1)).expect("maps the peer's")
            })
            .collect();
        rig.kill_b();
        rig.revive_b();
        assert!(views.iter().all(|view| Store::len(view) == 4096));
    }
}

/// Side a gets fresh memory, and what side b stores there arrives.
fn a_word_arrives<C: Cable>(rig: &mut Rig<C>, window: usize, range: SegmentRange) {
    let memory = rig.cable.a().map_inbound(window, range).expect("maps its own");
    let view = rig.cable.b().map_outbound(window, range).expect("maps the peer's");
    view.store_u64(0, 5);
    view.store_fence();
    rig.until("the word arrived", |_| memory.load_u64(0) == 5);
}

/// Set-up as daemons do it: each side proposes an epoch, the larger one counts.
fn agree<C: Cable>(rig: &mut Rig<C>, a: u32, b: u32) -> Epoch {
    let setup = |host, epoch, key| Setup {
        version: PROTOCOL_VERSION,
        host: HostId(host),
        epoch: Epoch(epoch),
        window: WINDOW,
        key,
        flags: 0,
    };
    let (ours, theirs) = (setup(1, a, 11), setup(2, b, 22));
    propose(rig.cable.a(), ours);
    propose(rig.cable.b(), theirs);
    rig.until("both sides read the other's words", |rig| {
        read(rig.cable.a()) == Some(theirs) && read(rig.cable.b()) == Some(ours)
    });
    ours.epoch.max(theirs.epoch)
}

fn propose(port: &impl Port, setup: Setup) {
    let words = setup.to_words();
    words.iter().enumerate().skip(1).for_each(|(index, word)| port.write_peer_scratchpad(index, *word));
    port.write_peer_scratchpad(0, MAGIC);
    port.ring_peer_doorbell(1 << DOORBELL_SETUP);
}

fn read(port: &impl Port) -> Option<Setup> {
    let mut words = [0; WORDS];
    words.iter_mut().enumerate().for_each(|(index, word)| *word = port.read_scratchpad(index));
    Setup::from_words(words).ok().flatten()
}
