//! Wakes of circuits through this host: a pump rings its neighbours' programs, and where the ends share memory each asks and wakes
//! the other by way of us.

use crate::cable::Cable;
use crate::host::Host;
use crate::pump::Command;
use crate::transit_wakes::{OwedWake, PassedAsk, PumpAsk};
use crosslane_shm::wake::FarWaker;
use crosslane_wire::control::Control;
use crosslane_wire::{ChannelId, PortId, TransitId, WaiterId};

impl Host {
    /// A neighbour says how a waiter is rung: that is for the pump that asked. Whether one did.
    pub(crate) fn answer_pump(
        &mut self,
        port: PortId,
        (channel, waiter): (ChannelId, WaiterId),
        waker: &mut Option<FarWaker>,
    ) -> bool {
        let Some(PumpAsk { transit, side, .. }) = self.transit_wakes.answer_pump(port, channel, waiter)
        else {
            return false;
        };
        self.transits.tell_pump(Command::Waker { transit, leg: side, waiter, waker: waker.take() });
        true
    }

    /// Rings a neighbour's waiter by way of its daemon, and finds out how the pump can do it itself next time.
    pub(super) fn wake_for_pump(&mut self, transit: TransitId, side: usize, waiter: WaiterId) {
        let Some(channel) = self.policy.circuits.channel_of(transit, side) else { return };
        let Some((port, peer)) = self.neighbour_of(channel) else { return };
        self.wake_neighbour(channel, waiter);
        let is_new = self.transit_wakes.ask(PumpAsk { port, channel: peer, waiter, transit, side });
        if let Some(cable) = self.cables.get_mut(port).filter(|_| is_new) {
            cable.want_waker(peer, waiter);
        }
    }

    /// A neighbour wants to wake a waiter that sleeps at the far end of a circuit: whether the question was passed on, or
    /// answered. `named` is the channel as it named it.
    pub(crate) fn pass_want(
        &mut self,
        (transit, side): (TransitId, usize),
        named: ChannelId,
        waiter: WaiterId,
    ) -> bool {
        let transits = &self.transits;
        let asked = transits.opposite(transit, side).zip(transits.opposite(transit, 1 - side));
        let Some((asked, asker)) = asked else { return false };
        let channel = self.policy.circuits.channel_of(transit, 1 - side).and_then(|it| self.neighbour_of(it));
        let peer = channel.map(|(_, peer)| peer);
        let peer = peer.filter(|&peer| {
            self.transit_wakes.pass(PassedAsk { transit, asker, named, asked, peer, waiter })
        });
        if let (Some(peer), Some(cable)) = (peer, self.cables.get_mut(asked)) {
            cable.want_waker(peer, waiter);
        } else {
            self.cables.send(asker, &Control::Waker { channel: named, waiter, doorbell: None });
        }
        true
    }

    /// A neighbour's answer to a question that was passed on to it goes back to whoever asked; nothing of it stays here.
    pub(crate) fn pass_waker(
        &mut self,
        port: PortId,
        (channel, waiter): (ChannelId, WaiterId),
        waker: Option<&FarWaker>,
    ) {
        let answered = self.transit_wakes.answer_passed(port, channel, waiter);
        let Some(PassedAsk { asker, named, .. }) = answered else { return };
        if let Some(cable) = self.cables.get_mut(asker) {
            // Only hosts that all have the same memory pass such questions on, and there all wake by descriptors.
            let doorbell = match waker {
                Some(FarWaker::Own(waker)) => cable.export_waker(waker),
                Some(FarWaker::Queued(_)) | None => None,
            };
            cable.send(&Control::Waker { channel: named, waiter, doorbell });
        }
    }

    /// A cable is down: what pumps and others asked of its neighbour is not answered any more, and what it asked not needed.
    pub(crate) fn fail_transit_wakes(&mut self, port: PortId) {
        for PassedAsk { asker, named, waiter, .. } in self.transit_wakes.fail(port) {
            self.cables.send(asker, &Control::Waker { channel: named, waiter, doorbell: None });
        }
    }

    /// A neighbour wakes a waiter at the far end of a circuit: passed on at once, or when there is room for it. Whether it was
    /// for the far end.
    pub(crate) fn pass_wake(&mut self, (transit, side): (TransitId, usize), waiter: WaiterId) -> bool {
        let Some(port) = self.transits.opposite(transit, side) else { return false };
        if self.cables.get(port).is_some_and(Cable::has_room) {
            self.wake_opposite(transit, side, waiter);
            return true;
        }
        self.transit_wakes.owe(OwedWake { port, transit, side, waiter });
        true
    }

    /// Passes wakes on that waited for room.
    pub(crate) fn send_owed_wakes(&mut self) {
        for port in self.cables.ports() {
            while self.cables.get(port).is_some_and(Cable::has_room)
                && let Some(wake) = self.transit_wakes.poll_owed(port)
            {
                self.wake_opposite(wake.transit, wake.side, wake.waiter);
            }
        }
    }

    fn wake_opposite(&mut self, transit: TransitId, side: usize, waiter: WaiterId) {
        if let Some(channel) = self.policy.circuits.channel_of(transit, 1 - side) {
            self.wake_neighbour(channel, waiter);
        }
    }
}
