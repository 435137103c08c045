//! How a cable comes up, goes down, and comes back.

use super::Wakers;
use super::{
    CONTROL_LIMITS, CONTROL_RANGE, Cable, CableEvent, IP_LIMITS, IP_RING_FIRST, Live, PENANCE,
    SETUP_DOORBELLS, WINDOW, ip_range, ip_ring_max,
};
use crate::channel::{Channel, Rings};
use crate::random;
use crosslane_fabric::circuit::Death;
use crosslane_fabric::setup::{Agreement, Output};
use crosslane_port::{Event, PortError};
use crosslane_wire::scratchpad::{DOORBELL_SETUP, WORDS};
use crosslane_wire::segment::RING_MIN;
use std::time::Duration;

impl Cable {
    pub(super) fn handle_port(&mut self, event: Event, now: Duration) {
        match event {
            Event::LinkUp => {
                self.retry_at = None;
                let words = self.words();
                self.setup.handle_link_up(words, random::u32());
            }
            Event::LinkDown(reason) => {
                self.retry_at = None;
                self.why = Some(reason.to_string());
                self.broken = None;
                self.setup.handle_link_down();
                self.run_setup(now, Death::Cable);
                self.release();
            }
            Event::Doorbell(bits) if bits & 1 << DOORBELL_SETUP != 0 => {
                if self.retry_at.is_some() || !self.may_set_up(now) {
                    return;
                }
                let words = self.words();
                self.setup.handle_words(words, random::u32());
            }
            Event::Doorbell(_) => {}
        }
    }

    /// Whether the peer may ring for set-up once more: a cable on which it does so without end is down for a while.
    fn may_set_up(&mut self, now: Duration) -> bool {
        let (second, rung) = self.setup_doorbells;
        self.setup_doorbells = if second == now.as_secs() { (second, rung + 1) } else { (now.as_secs(), 1) };
        let may = self.setup_doorbells.1 <= SETUP_DOORBELLS;
        if !may {
            self.break_off(Death::Violation, "the peer rings for set-up without end".to_owned());
        }
        may
    }

    /// Does what set-up wants, takes a broken cable down, and brings it back when its time has come.
    pub(super) fn run_deferred(&mut self, now: Duration) {
        self.rest_until = self.rest_until.filter(|until| *until > now);
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            let words = self.words();
            self.setup.handle_link_up(words, random::u32());
        }
        self.run_setup(now, Death::Cable);
        if self.expected_at.is_some_and(|at| at <= now) {
            self.expected_at = None;
            let why = self.link().1.unwrap_or_else(|| "the other side does not answer".to_owned());
            self.events.push_back(CableEvent::Missing(why));
        }
        if let Some((death, why)) = self.broken.take() {
            self.why = Some(why);
            self.setup.withdraw();
            self.run_setup(now, death);
            self.release();
            self.retry_at = Some(now + PENANCE);
        }
    }

    fn run_setup(&mut self, now: Duration, death: Death) {
        while let Some(output) = self.setup.poll_output() {
            match output {
                Output::Prepare => self.prepare(),
                Output::Write { index, value } => self.port.write_peer_scratchpad(index, value),
                Output::Ring => self.port.ring_peer_doorbell(1 << DOORBELL_SETUP),
                Output::Up(agreement) => self.begin(agreement, now),
                Output::Down => {
                    self.live = None;
                    self.release();
                    let why = self.why.clone().unwrap_or_else(|| "the peer began anew".to_owned());
                    self.events.push_back(CableEvent::Down(death, why));
                }
                Output::Refused(why) => {
                    self.expected_at = None;
                    self.events.push_back(CableEvent::Refused(why));
                }
            }
        }
    }

    /// Fresh memory for the channels, before our words announce it.
    fn prepare(&mut self) {
        self.release();
        let control = self.port.map_inbound(WINDOW, CONTROL_RANGE);
        let ip = self.port.map_inbound(WINDOW, ip_range(self.config.window));
        match (control, ip) {
            (Ok(control), Ok(ip)) => self.prepared = Some([control, ip]),
            (Err(error), _) | (_, Err(error)) => {
                self.break_off(Death::Cable, format!("no memory for channels: {error}"))
            }
        }
    }

    fn begin(&mut self, agreement: Agreement, now: Duration) {
        match self.open_channels(&agreement) {
            Ok(live) => {
                self.live = Some(live);
                self.last_peer = Some(agreement.peer);
                self.why = None;
                self.expected_at = None;
                self.events.push_back(CableEvent::Up(agreement));
            }
            Err(error) => {
                tracing::warn!(port = %self.config.name, %error, ?now, "channels cannot be mapped");
                self.break_off(Death::Cable, format!("channels cannot be mapped: {error}"));
            }
        }
    }

    fn open_channels(&mut self, agreement: &Agreement) -> Result<Live, PortError> {
        let [control_in, ip_in] = self.prepared.take().ok_or(PortError::NotThere)?;
        let control_out = self.port.map_outbound(WINDOW, CONTROL_RANGE)?;
        let ip_out = self.port.map_outbound(WINDOW, ip_range(agreement.peer_window))?;
        let keys = |channel: u64| {
            let key = |key: u32| u64::from(key) << 32 | channel;
            (key(agreement.rx_key), key(agreement.tx_key))
        };
        let control = Rings { first: RING_MIN, rx_max: RING_MIN, tx_max: RING_MIN };
        let (rx_max, tx_max) = (ip_ring_max(self.config.window), ip_ring_max(agreement.peer_window));
        let ip = Rings { first: IP_RING_FIRST, rx_max, tx_max };
        Ok(Live {
            agreement: *agreement,
            control: Channel::new(control_in, control_out, control, keys(1), CONTROL_LIMITS),
            ip: Channel::new(ip_in, ip_out, ip, keys(2), IP_LIMITS),
        })
    }

    /// Takes all inbound memory back: the epoch is over.
    fn release(&mut self) {
        self.prepared = None;
        self.live = None;
        self.wakers = Wakers::default();
        self.asked = 0;
        self.outgrown.clear();
        self.held.clear();
        let mut ranges = self.window.clear();
        ranges.extend([CONTROL_RANGE, ip_range(self.config.window)]);
        for range in ranges {
            self.port.free_inbound(WINDOW, range);
        }
    }

    fn words(&self) -> [u32; WORDS] {
        std::array::from_fn(|index| self.port.read_scratchpad(index))
    }
}
