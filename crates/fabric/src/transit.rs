//! Circuits that pass through this host: a pair of channels. The *onward* one was requested because the host before asked for the other.
//!
//! ```text
//!   transit --> Opening --> Passed: pass --> Open --> a side closes in order: Drain ... drained --> [Half closed]
//!                  |                           |                                                      |
//!                  v refused                   +--> a side is lost, or broken off: Stop               v the other closes: Stop
//!                (gone)                                                  --> (gone)                 (gone)
//! ```
//! What one side learns of its neighbour (closed, aborted, lost), this host tells the neighbour on the other side. The
//! side that closed in order gets its `Closed` only when the other side knows of it and has closed too: if that other
//! side's cable is lost before, it looks for the stream again, and must find what is left of it.

use crate::channel::Event;
use crate::output::Output;
pub use crate::table::{BEFORE, BEHIND, Transit};
use crate::table::{Circuits, Owner, Path};
use crosslane_wire::control::Closing;
use crosslane_wire::{ChannelId, SegmentRange, TransitId};
use std::time::Duration;

impl Circuits {
    /// A neighbour asks for a circuit through this host, by the channel whose id there is `peer`. The caller sends `Open`
    /// with the second of the returned channels. `late`: how to close that one if its answer comes too late.
    pub fn transit(
        &mut self,
        before: Path,
        peer: ChannelId,
        behind: Path,
        (deadline, late): (Duration, Closing),
    ) -> (TransitId, [ChannelId; 2]) {
        self.last_transit += 1;
        let transit = TransitId(self.last_transit);
        let asked = self.channels.handle_open(before.port, before.epoch, peer);
        let asking = self.channels.dial(behind.port, behind.epoch, deadline, late);
        let channels = [asked, asking];
        for (side, channel) in channels.into_iter().enumerate() {
            self.owners.insert(channel, Owner::Transit(transit, side));
        }
        self.transits.insert(transit, Transit { channels, draining: [false; 2] });
        (transit, channels)
    }

    /// Both halves exist: tells the host before where it may write, the stream offset that has arrived at the far end,
    /// and how many hosts pump from here on, including this one.
    pub fn pass(&mut self, transit: TransitId, segment: (SegmentRange, u64), arrived: u64, pumps: u8) {
        if let Some(found) = self.transits.get(&transit) {
            self.channels.answer(found.channels[BEFORE], segment, arrived, pumps);
        }
    }

    /// All that the side wrote before it closed was forwarded: tells the other side of the close.
    pub fn drained(&mut self, transit: TransitId, side: usize) {
        if let Some(found) = self.transits.get(&transit).filter(|found| found.draining[side]) {
            self.channels.close(found.channels[1 - side], Closing::Done);
        }
    }

    /// Ends the circuit: done with, aborted, since one of the two sides broke the protocol, or lost.
    pub fn break_transit(&mut self, transit: TransitId, how: Closing) {
        let Some(found) = self.transits.remove(&transit) else { return };
        self.outputs.push_back(Output::Stop { transit });
        for channel in found.channels {
            self.owners.remove(&channel);
            self.channels.close(channel, how);
        }
    }

    /// The channel on one side of a circuit in transit.
    pub fn channel_of(&self, transit: TransitId, side: usize) -> Option<ChannelId> {
        self.transits.get(&transit)?.channels.get(side).copied()
    }

    /// All circuits in transit.
    pub fn transits(&self) -> impl Iterator<Item = (TransitId, &Transit)> {
        self.transits.iter().map(|(transit, found)| (*transit, found))
    }

    pub(crate) fn transit_event(&mut self, transit: TransitId, side: usize, event: Event) {
        let Some(found) = self.transits.get_mut(&transit) else { return };
        match event {
            Event::Opened { segment, key, arrived, pumps } => {
                self.outputs.push_back(Output::Passed { transit, segment, key, arrived, pumps });
            }
            Event::Failed(why) => {
                let asked = found.channels[BEFORE];
                self.transits.remove(&transit);
                self.owners.remove(&asked);
                self.channels.refuse(asked, why);
                self.outputs.push_back(Output::Stop { transit });
            }
            Event::FarClosed(Closing::Done) if found.draining[1 - side] => {
                self.break_transit(transit, Closing::Done)
            }
            Event::FarClosed(Closing::Done) => {
                found.draining[side] = true;
                self.outputs.push_back(Output::Drain { transit, side });
            }
            Event::FarClosed(how) => self.break_transit(transit, how),
            Event::Lost => self.break_transit(transit, Closing::Lost),
            // The neighbour knew that the other side had closed, and has closed too.
            Event::Freed(_) => self.break_transit(transit, Closing::Done),
        }
    }
}
