//! Prometheus: the text, and a small HTTP server on loopback that gives it out.

use crate::host::Host;
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Most readers at one time.
const READERS_MAX: usize = 64;
/// Longest request, bytes.
const REQUEST_MAX: usize = 8192;
/// How long a reader may take.
const PATIENCE: Duration = Duration::from_secs(5);

impl Host {
    /// `Metrics`: counters in Prometheus' text format.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        let (totals, c) = (self.stream_totals(), &self.counters);
        for (name, kind, help, value) in [
            ("streams_opened_total", "counter", "Stream ends that programs got.", c.streams_opened),
            ("streams_open", "gauge", "Stream ends that programs hold.", totals.open),
            ("streams_closed_total", "counter", "Stream ends closed in order.", c.streams_closed),
            ("streams_aborted_total", "counter", "Stream ends broken off here.", c.streams_aborted),
            ("stream_tx_bytes_total", "counter", "Payload sent by streams.", totals.tx_bytes),
            ("stream_rx_bytes_total", "counter", "Payload received by streams.", totals.rx_bytes),
            ("ip_tx_packets_total", "counter", "IP packets into the fabric.", c.ip_tx_packets),
            ("ip_rx_packets_total", "counter", "IP packets out of the fabric.", c.ip_rx_packets),
            ("ip_tx_bytes_total", "counter", "Bytes of IP into the fabric.", c.ip_tx_bytes),
            ("ip_rx_bytes_total", "counter", "Bytes of IP out of the fabric.", c.ip_rx_bytes),
            ("ip_forwarded_packets_total", "counter", "IP packets passed on.", c.ip_forwarded_packets),
            ("ip_dropped_packets_total", "counter", "IP packets dropped.", c.ip_dropped_packets),
            (
                "ip_refused_packets_total",
                "counter",
                "IP packets with a source that is not their sender's.",
                c.ip_refused_packets,
            ),
            ("moves_total", "counter", "Streams that lost their circuit and looked for another.", c.moves),
            ("transits", "gauge", "Circuits that pass through this host.", self.passages.len() as u64),
            (
                "transit_bytes_total",
                "counter",
                "Payload that passed through this host.",
                self.transit_bytes(),
            ),
            ("bells_total", "counter", "Wake events rung.", c.bells.wrapping_add(totals.bells)),
            (
                "link_states_refused_total",
                "counter",
                "Link states that were not believed since the keys were read.",
                self.links.refused().values().map(|refused| refused.count).sum(),
            ),
            ("violations_total", "counter", "Broken protocols.", c.violations),
            ("sessions", "gauge", "Programs and tools connected.", self.sessions.len() as u64),
            ("hosts", "gauge", "Hosts in reach.", self.links.hosts().count() as u64),
        ] {
            let _ = writeln!(
                text,
                "# HELP crosslane_{name} {help}\n# TYPE crosslane_{name} {kind}\ncrosslane_{name} {value}"
            );
        }
        self.write_ports(&mut text);
        let _ = writeln!(text, "# HELP crosslane_plain_total Connections that stayed TCP, by reason.");
        let _ = writeln!(text, "# TYPE crosslane_plain_total counter");
        for (why, count) in &c.plain {
            let _ = writeln!(text, "crosslane_plain_total{{why=\"{why}\"}} {count}");
        }
        self.write_quotas(&mut text);
        text
    }

    fn write_quotas(&self, text: &mut String) {
        let _ =
            writeln!(text, "# HELP crosslane_quota_refused_total Times that a quota was used up, by kind.");
        let _ = writeln!(text, "# TYPE crosslane_quota_refused_total counter");
        let mut sums = BTreeMap::new();
        for (kind, refused) in self.ledger.refusals() {
            *sums.entry(kind.name()).or_insert(0) += refused;
        }
        for (kind, refused) in sums {
            let _ = writeln!(text, "crosslane_quota_refused_total{{kind=\"{kind}\"}} {refused}");
        }
    }

    fn write_ports(&self, text: &mut String) {
        type Read = fn(&Host, &crate::cable::Cable) -> u64;
        let series: [(&str, &str, &str, Read); 5] = [
            ("port_up", "gauge", "Whether the cable is up.", |_, cable| {
                u64::from(cable.agreement().is_some())
            }),
            ("port_epoch", "gauge", "The cable's epoch.", |_, cable| u64::from(cable.epoch().0)),
            ("port_window_used_bytes", "gauge", "Inbound memory given out.", |_, cable| {
                cable.window().used_bytes()
            }),
            ("port_tx_bytes_total", "counter", "Bytes sent.", |host, cable| host.port_bytes(cable).0),
            ("port_rx_bytes_total", "counter", "Bytes received.", |host, cable| host.port_bytes(cable).1),
        ];
        for (name, kind, help, read) in series {
            let _ = writeln!(text, "# HELP crosslane_{name} {help}\n# TYPE crosslane_{name} {kind}");
            for cable in &self.cables {
                let port = cable.config.name.replace(['\\', '"', '\n'], "_");
                let _ = writeln!(text, "crosslane_{name}{{port=\"{port}\"}} {}", read(self, cable));
            }
        }
    }
}

struct Reader {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
    until: Duration,
}

/// The HTTP server. It polls its own readers behind one descriptor.
pub struct MetricsServer {
    listener: TcpListener,
    epoll: OwnedFd,
    readers: BTreeMap<u64, Reader>,
    last: u64,
}

impl MetricsServer {
    /// Listens at a loopback address.
    pub fn open(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Self { listener, epoll, readers: BTreeMap::new(), last: 0 })
    }

    /// Readable when [`Self::serve`] has something to do.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// When a slow reader's time is over.
    pub fn deadline(&self) -> Option<Duration> {
        self.readers.values().map(|reader| reader.until).min()
    }

    /// Takes new readers, reads their requests, answers, and drops those that are done or too slow.
    pub fn serve(&mut self, now: Duration, mut text: impl FnMut() -> String) {
        self.accept(now);
        let done: Vec<u64> = self
            .readers
            .iter_mut()
            .filter_map(|(number, reader)| {
                (reader.until <= now || reader.advance(&mut text)).then_some(*number)
            })
            .collect();
        for number in done {
            self.readers.remove(&number);
        }
    }

    fn accept(&mut self, now: Duration) {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.readers.len() >= READERS_MAX {
                // The one that has taken longest goes: an honest one would have its answer by now.
                self.readers.pop_first();
            }
            self.last += 1;
            let interest = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            if epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(self.last), interest).is_ok() {
                let until = now + PATIENCE;
                self.readers.insert(self.last, Reader { stream, request: vec![], answer: vec![], until });
            }
        }
        let mut events = Vec::with_capacity(READERS_MAX + 1);
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&zero));
    }
}

impl Reader {
    /// Reads and writes as far as possible; `true` when done.
    fn advance(&mut self, text: &mut impl FnMut() -> String) -> bool {
        let mut chunk = [0; 1024];
        while self.answer.is_empty() {
            match self.stream.read(&mut chunk) {
                Ok(0) => return true,
                Ok(count) => self.request.extend(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(_) => return true,
            }
            if self.request.windows(4).any(|end| end == b"\r\n\r\n") {
                self.answer = answer_to(&self.request, text);
            } else if self.request.len() > REQUEST_MAX {
                return true;
            }
        }
        while !self.answer.is_empty() {
            match self.stream.write(&self.answer) {
                Ok(0) => return true,
                Ok(count) => drop(self.answer.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(_) => return true,
            }
        }
        true
    }
}

fn answer_to(request: &[u8], text: &mut impl FnMut() -> String) -> Vec<u8> {
    let known = [b"GET /metrics ".as_slice(), b"GET / ".as_slice()];
    let (status, body) = if known.iter().any(|path| request.starts_with(path)) {
        ("200 OK", text())
    } else {
        ("404 Not Found", "see /metrics\n".to_owned())
    };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
