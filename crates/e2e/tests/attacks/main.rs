//! Attacks, as another user of the machine or as a neighbour: they do no harm, and honest users notice nothing.

mod blackhole;
mod blocking;
mod hijack;
mod hoard;
mod inherited;
mod labfolder;
mod leftovers;
mod locks;
mod logflood;
mod lostsession;
mod memory;
mod names;
mod neighbour;
mod noise;
mod spying;
mod statusflood;
mod wake;
