//! Our ports with their cables, and the memory of each port that channels have.

use crate::cable::Cable;
use crate::quota::Charge;
use crosslane_shm::arm::NextSleep;
use crosslane_wire::control::Control;
use crosslane_wire::{ChannelId, Epoch, HostId, PortId, SegmentRange};
use std::collections::HashMap;
use std::time::Duration;

/// The cables of this host, in the order of their ports.
#[derive(Default)]
pub struct Cables {
    all: Vec<Cable>,
    /// Where in its port's inbound memory the segment of each channel lies, and what is paid for that.
    memory: HashMap<ChannelId, (SegmentRange, Charge)>,
    /// For messages of neighbours.
    buffer: Vec<u8>,
}

impl Cables {
    /// These, whose ports are numbered in this order.
    pub fn new(all: Vec<Cable>) -> Self {
        Self { all, ..Self::default() }
    }

    /// All ports.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + use<> {
        (0..=u8::MAX).map(PortId).take(self.all.len())
    }

    /// All cables.
    pub fn iter(&self) -> impl Iterator<Item = &Cable> {
        self.all.iter()
    }

    /// All cables, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Cable> {
        self.all.iter_mut()
    }

    /// A cable by its port.
    pub fn get(&self, port: PortId) -> Option<&Cable> {
        self.all.get(usize::from(port.0))
    }

    /// A cable by its port, mutable.
    pub fn get_mut(&mut self, port: PortId) -> Option<&mut Cable> {
        self.all.get_mut(usize::from(port.0))
    }

    /// What the configuration calls a port.
    pub fn name(&self, port: PortId) -> Option<&str> {
        self.get(port).map(|cable| cable.config.name.as_str())
    }

    /// Who is at the other end of a cable, while it is up.
    pub fn neighbour(&self, port: PortId) -> Option<HostId> {
        self.get(port)?.agreement().map(|agreement| agreement.peer)
    }

    /// Sends a control message; to nobody, if there is no such port or its cable is down.
    pub fn send(&mut self, port: PortId, message: &Control) {
        if let Some(cable) = self.get_mut(port) {
            cable.send(message);
        }
    }

    /// The next control message that came by a port.
    pub fn receive(&mut self, port: PortId) -> Option<Control> {
        self.all.get_mut(usize::from(port.0))?.receive(&mut self.buffer)
    }

    /// Moves what waits for room at all ports, and rings the neighbours that sleep.
    pub fn flush(&mut self) {
        self.all.iter_mut().for_each(Cable::flush);
    }

    /// When the next cable is due, on the daemon's clock.
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        self.all.iter().filter_map(|cable| cable.deadline(now)).min()
    }

    /// Whether a message waits anywhere.
    pub fn arrived(&self) -> bool {
        self.all.iter().any(Cable::arrived)
    }

    /// Asks for wakes before a sleep; `true` if something has arrived meanwhile.
    pub fn arm(&mut self) -> bool {
        self.all.iter_mut().fold(false, |arrived, cable| cable.arm() | arrived)
    }

    /// Wants no more wakes.
    pub fn disarm(&mut self) {
        self.all.iter_mut().for_each(Cable::disarm);
    }

    /// How long the next sleep may last, and whether what was asked for may have been under way when this was called last.
    pub fn next_sleep(&mut self) -> (NextSleep, bool) {
        let is_under_way = self.all.iter().any(Cable::is_under_way);
        let next = self.all.iter_mut().map(Cable::next_sleep);
        (next.fold(NextSleep::Unbounded, NextSleep::sooner), is_under_way)
    }

    /// A range of a port's memory is a channel's from now on, and this is paid for it.
    pub fn keep(&mut self, channel: ChannelId, range: (SegmentRange, Charge)) {
        self.memory.insert(channel, range);
    }

    /// A channel of this epoch is gone: its memory may be given to another. Whether there is more of it now.
    pub fn free_channel(&mut self, channel: ChannelId, port: PortId, epoch: Epoch) -> bool {
        let Some((range, _charge)) = self.memory.remove(&channel) else { return false };
        let cable = self.get_mut(port);
        let cable = cable.filter(|cable| cable.agreement().is_some_and(|agreed| agreed.epoch == epoch));
        cable.map(|cable| cable.free_inbound(range)).is_some()
    }

    /// Takes a segment back that was given out for nothing.
    pub fn free_inbound(&mut self, port: PortId, range: SegmentRange) {
        if let Some(cable) = self.get_mut(port) {
            cable.free_inbound(range);
        }
    }

    /// Counts payload that went by a port by circuits which are no more, sent and received, bytes.
    pub fn count_past(&mut self, port: PortId, (tx, rx): (u64, u64)) {
        if let Some(cable) = self.get_mut(port) {
            let past = &mut cable.traffic;
            past.past_tx_bytes = past.past_tx_bytes.wrapping_add(tx);
            past.past_rx_bytes = past.past_rx_bytes.wrapping_add(rx);
        }
    }

    /// Keeps room for about so many channels.
    pub fn shrink_to(&mut self, kept: usize) {
        self.memory.shrink_to(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cable::CableEvent;
    use crate::config::{PortConfig, PortKind, WINDOW_MIN};
    use crosslane_port::PortError;
    use crosslane_wire::segment::{RING_MIN, segment_len};
    use std::time::Instant;

    /// A side of a soft cable in `folder`.
    fn side(folder: &std::path::Path, listens: bool, window: u64) -> Result<Cable, PortError> {
        let config = PortConfig {
            name: "port".to_owned(),
            kind: PortKind::Soft,
            cable: folder.join("cable"),
            listens,
            window,
            mode: 0o600,
            cut: false,
        };
        Cable::open(PortId(0), HostId(if listens { 1 } else { 2 }), config)
    }

    /// The two sides of a cable that is up, each the only port of its host.
    fn joined(folder: &std::path::Path) -> [Cables; 2] {
        let side = |listens| Cables::new(vec![side(folder, listens, 4 << 20).unwrap()]);
        let (mut sides, mut up, start) = ([side(true), side(false)], 0, Instant::now());
        while up < 2 {
            for cable in sides.iter_mut().flat_map(Cables::iter_mut) {
                up += usize::from(matches!(cable.poll_event(start.elapsed()), Some(CableEvent::Up(_))));
            }
            assert!(start.elapsed() < Duration::from_secs(30), "the cable does not come up");
        }
        sides
    }

    /// As a bridge's may be, whatever the configuration wants.
    #[test]
    fn window_that_is_too_short_is_refused_with_both_lengths() {
        let folder = tempfile::tempdir().unwrap();
        assert!(side(folder.path(), true, WINDOW_MIN).is_ok());
        let error = side(folder.path(), true, WINDOW_MIN - 4096).err().unwrap().to_string();
        assert_eq!(error, "a window of 913408 bytes is too short: at least 917504 are needed");
    }

    #[test]
    fn memory_of_a_channel_is_given_back_once_and_in_its_own_epoch_only() {
        let folder = tempfile::tempdir().unwrap();
        let [mut cables, _far] = joined(folder.path());
        let port = PortId(0);
        let used = |cables: &Cables| cables.get(port).unwrap().window().used_bytes();
        let (epoch, before) = (cables.get(port).unwrap().epoch(), used(&cables));
        for (channel, freed) in [(ChannelId(1), Epoch(epoch.0.wrapping_add(1))), (ChannelId(2), epoch)] {
            let (range, _) = cables.get_mut(port).unwrap().carve_inbound(segment_len(RING_MIN)).unwrap();
            cables.keep(channel, (range, Charge::of_nothing()));
            assert_eq!(cables.free_channel(channel, port, freed), freed == epoch);
            assert!(!cables.free_channel(channel, port, epoch), "it is the channel's no more");
        }
        assert_eq!(
            used(&cables) - before,
            segment_len(RING_MIN),
            "that of another epoch went with its cable"
        );
    }

    #[test]
    fn neighbours_are_known_by_their_port_and_hear_what_is_sent_there() {
        let folder = tempfile::tempdir().unwrap();
        let [mut near, mut far] = joined(folder.path());
        let (port, none) = (PortId(0), PortId(1));
        assert!(near.ports().eq([port]));
        assert_eq!((near.neighbour(port), far.neighbour(port)), (Some(HostId(2)), Some(HostId(1))));
        assert_eq!((near.neighbour(none), near.name(none), near.name(port)), (None, None, Some("port")));
        near.send(none, &Control::Goodbye);
        near.flush();
        assert!(!far.arrived());
        near.send(port, &Control::Goodbye);
        near.flush();
        assert!(far.arrived() && far.receive(none).is_none());
        assert!(matches!(far.receive(port), Some(Control::Goodbye)));
    }
}
