//! Attacks, as another user of the machine or as a neighbour: they do no harm, and honest users notice nothing.

mod blocking;
mod hoard;
mod leftovers;
mod memory;
mod neighbour;
mod noise;
mod wake;
