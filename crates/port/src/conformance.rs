//! The conformance suite: checks that run on any [`Cable`].
//!
//! [`run`] makes a fresh cable for each check. A check fails by panic. The checks never sleep: they poll, and let the
//! ports' own time pass by [`Cable::pass`], until a deadline in real time.

mod links;
mod memory;
mod registers;
mod rig;

use crate::Port;
pub use rig::Rig;

/// Two ports and the cable between them. The suite calls all methods from one thread.
pub trait Cable {
    /// The back end.
    type Port: Port;
    /// The side that stays up.
    fn a(&mut self) -> &mut Self::Port;
    /// The side that is killed and revived.
    fn b(&mut self) -> &mut Self::Port;
    /// Lets a little of the ports' time pass: enough, after some calls, for all posted writes to arrive and for every
    /// retry to be due. Takes a few milliseconds of real time at most, and ends early if something happens.
    fn pass(&mut self);
    /// Side B's daemon is killed. [`Self::b`] is not called before [`Self::revive_b`].
    fn kill_b(&mut self);
    /// Side B's daemon starts again, with a fresh port.
    fn revive_b(&mut self);
    /// A process in side B's place writes rubbish to all places that it can reach. Side B is there afterwards, as before or revived.
    fn rubbish_from_b(&mut self);
}

/// A check of the suite.
pub type Check<C> = (&'static str, fn(&mut Rig<C>));

/// All checks.
pub fn checks<C: Cable>() -> Vec<Check<C>> {
    vec![
        ("a port has what it must have", registers::has_enough),
        ("the link comes up on both sides", links::comes_up),
        ("scratchpads carry words both ways", registers::scratchpads),
        ("a doorbell is reported once", registers::doorbells),
        ("a masked doorbell stays pending", registers::masks),
        ("an event makes the descriptor readable", registers::event_descriptor),
        ("a doorbell comes after the stores before it", registers::doorbell_order),
        ("stores arrive, in segments of fresh zeros", memory::stores_arrive),
        ("what lies before a fence arrives before what lies behind it", memory::fences_order),
        ("windows are apart", memory::windows_are_apart),
        ("ranges are checked", memory::ranges_are_checked),
        ("a translation stays while it has segments", memory::translations),
        ("a carved descriptor is that segment and no more", memory::carved_descriptors),
        ("a freed range has new memory", memory::freed_ranges),
        ("a bell rings on the other side", registers::bells),
        ("a buffer is taken once, and as what it is", registers::buffers),
        ("a peer that dies and returns begins a new life", links::death_and_return),
        ("what was carved in an old life leads nowhere", links::old_views),
        ("a link that is switched off stays down until it is switched on", links::off_and_on),
        ("rubbish hurts nobody for long", links::rubbish),
        ("all ranges are free in every one of many lives", links::many_lives),
    ]
}

/// Runs all checks, each on a fresh cable. Prints their names.
pub fn run<C: Cable>(mut make: impl FnMut() -> C) {
    for (name, check) in checks() {
        println!("conformance: {name}");
        check(&mut Rig::new(make()));
    }
}
