//! The hosts of the study's ring, each a thread, and the measurements between them.

use super::host::{Host, Transfer, Wake};
use anyhow::{Context, Result, ensure};
use crosslane_port::soft::{SoftConfig, SoftPort};
use crosslane_shm::{Inbound, Load};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How long the links may take to come up, and an answer to come.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);
/// First word of a transfer: the last one.
const LAST: u64 = 1;

/// A ring that is set up.
#[derive(Debug)]
pub struct Ring {
    hosts: Vec<Host>,
}

impl Ring {
    /// Cables `hosts` hosts to a ring of soft ports and sets it up as the study does.
    ///
    /// # Errors
    /// A port cannot be made, or a link does not come up.
    pub fn new(hosts: u32) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = |cable: u32| SoftConfig::new(folder.path().join(format!("c{cable}")));
        let rights = (0..hosts).map(|id| SoftPort::listen(path(id))).collect::<Result<Vec<_>, _>>()?;
        let make = |(id, right): (u32, SoftPort)| {
            Host::new(id, SoftPort::connect(path((id + hosts - 1) % hosts))?, right)
        };
        let mut hosts = (0..hosts).zip(rights).map(make).collect::<Result<Vec<_>>>()?;
        until(&mut hosts, Host::is_up)?;
        let buffers = hosts.iter_mut().map(Host::offer).collect::<Result<Vec<_>>>()?;
        until(&mut hosts, Host::is_ready)?;
        for (host, buffer) in hosts.iter_mut().zip(buffers) {
            host.open(buffer)?;
        }
        // The links are up: the sockets are not needed any more, and none is left behind if we are killed.
        folder.close()?;
        Ok(Self { hosts })
    }

    /// Bytes in a second from host 0 to the host `hops` cables on, in transfers of `size` bytes (8 or more) one after
    /// the other for about `time`.
    ///
    /// # Errors
    /// A host fails or falls silent.
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    pub fn rate(&mut self, hops: u32, size: usize, time: Duration, wake: Wake) -> Result<f64> {
        let mut bytes = vec![0; size];
        self.run(hops, wake, |host, stop, taken| {
            let (begin, mut sent) = (Instant::now(), 0_u64);
            while begin.elapsed() < time {
                host.send(hops, &bytes, wake, stop)?;
                sent += size as u64;
            }
            bytes.truncate(8);
            bytes.copy_from_slice(&LAST.to_ne_bytes());
            host.send(hops, &bytes, wake, stop)?;
            let end = loop {
                let (word, at) = taken.recv_timeout(PEER_TIMEOUT).context("the destination is silent")?;
                if word == LAST {
                    break at;
                }
            };
            Ok(sent as f64 / (end - begin).as_secs_f64())
        })
    }

    /// Mean time from the call that sends `size` bytes (8 or more) until the host `hops` cables on has them, ns. One
    /// at a time, for about `time`.
    ///
    /// # Errors
    /// A host fails or falls silent.
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    pub fn one_way(&mut self, hops: u32, size: usize, time: Duration, wake: Wake) -> Result<f64> {
        let mut bytes = vec![0; size];
        bytes[..8].copy_from_slice(&LAST.to_ne_bytes());
        self.run(hops, wake, |host, stop, taken| {
            let (begin, mut total, mut count) = (Instant::now(), Duration::ZERO, 0_u32);
            while begin.elapsed() < time {
                let sent = Instant::now();
                host.send(hops, &bytes, wake, stop)?;
                total += taken.recv_timeout(PEER_TIMEOUT).context("the destination is silent")?.1 - sent;
                count += 1;
            }
            Ok(total.as_nanos() as f64 / f64::from(count))
        })
    }

    /// Runs all hosts, the first one by `measure`. The host at `hops` reports each transfer that it takes: its first
    /// word, and the time. Hosts behind it always sleep.
    fn run<T>(
        &mut self,
        hops: u32,
        wake: Wake,
        measure: impl FnOnce(&mut Host, &AtomicBool, &Receiver<(u64, Instant)>) -> Result<T>,
    ) -> Result<T> {
        let (first, others) = self.hosts.split_first_mut().context("a ring without hosts")?;
        ensure!(
            (1..=others.len()).contains(&(hops as usize)),
            "{hops} hops in a ring of {}",
            others.len() + 1
        );
        let stop = AtomicBool::new(false);
        let (report, taken) = channel();
        std::thread::scope(|scope| {
            let stop = &stop;
            let workers: Vec<_> = others
                .iter_mut()
                .map(|host| {
                    let wake = if host.id <= hops { wake } else { Wake::Interrupt };
                    let report = report.clone();
                    scope.spawn(move || {
                        host.serve(wake, stop, |transfer, buffer| take(transfer, buffer, &report))
                    })
                })
                .collect();
            let outcome = measure(first, stop, &taken);
            stop.store(true, Ordering::Relaxed);
            for worker in workers {
                worker.join().map_err(|_| anyhow::anyhow!("a host has panicked"))??;
            }
            outcome
        })
    }
}

/// The destination takes the data where it lies: it looks at the first word, and reports the requested ones.
fn take(transfer: Transfer, buffer: &Inbound, report: &Sender<(u64, Instant)>) -> Result<()> {
    let word = buffer.load_u64(transfer.address as usize);
    if word == LAST {
        report.send((word, Instant::now())).context("nobody measures")?;
    }
    Ok(())
}

fn until(hosts: &mut [Host], done: impl Fn(&Host) -> bool) -> Result<()> {
    let begin = Instant::now();
    while !hosts.iter().all(&done) {
        ensure!(begin.elapsed() < PEER_TIMEOUT, "the ring does not come up");
        for host in &mut *hosts {
            host.poll()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratchpad::host::BUFFER;
    use std::sync::Mutex;

    const SHORT: Duration = Duration::from_millis(5);

    #[test]
    fn scratchpad_ring_reaches_every_host() {
        for hosts in [3, 5] {
            let mut ring = Ring::new(hosts).unwrap();
            for hops in 1..hosts {
                for wake in [Wake::Interrupt, Wake::Poll] {
                    assert!(ring.one_way(hops, 64, SHORT, wake).unwrap() > 0.0);
                    assert!(ring.rate(hops, 4096, SHORT, wake).unwrap() > 0.0);
                }
            }
            assert!(ring.rate(hosts, 8, SHORT, Wake::Interrupt).is_err(), "there is no such host");
        }
    }

    #[test]
    fn scratchpad_bytes_arrive_in_order_over_hosts_between() {
        let mut ring = Ring::new(4).unwrap();
        let bytes: Vec<u8> = (0..=250).cycle().take(2 * BUFFER + 12_345).collect();
        let got = Mutex::new(Vec::new());
        let stop = AtomicBool::new(false);
        let [first, others @ ..] = &mut ring.hosts[..] else { panic!("no hosts") };
        std::thread::scope(|scope| {
            for host in others {
                let (got, stop, all) = (&got, &stop, bytes.len());
                scope.spawn(move || {
                    host.serve(Wake::Interrupt, stop, |transfer, buffer| {
                        assert_eq!((transfer.source, transfer.destination), (0, 2));
                        let mut got = got.lock().unwrap();
                        let at = got.len();
                        got.resize(at + transfer.length as usize, 0);
                        buffer.read(transfer.address as usize, &mut got[at..]);
                        if got.len() >= all {
                            stop.store(true, Ordering::Relaxed);
                        }
                        Ok(())
                    })
                    .unwrap();
                });
            }
            first.send(2, &bytes, Wake::Interrupt, &stop).unwrap();
        });
        assert!(*got.lock().unwrap() == bytes);
    }
}
