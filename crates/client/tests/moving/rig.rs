//! Two ends in one process, and the daemons that move them from circuit to circuit.

use core::sync::atomic::{AtomicU32, Ordering, fence};
use crosslane_client::buffers::{FarBuffer, Located};
use crosslane_client::segments::{Next, Retention, Segments};
use crosslane_client::shared::SharedState;
use crosslane_client::{BufferError, Daemon, End, Failure, Grant, ResumeError};
use crosslane_shm::mem::new_segment;
use crosslane_shm::ring::Cursor;
use crosslane_shm::state::StateView;
use crosslane_shm::{Inbound, Outbound, Store};
use crosslane_wire::local::{STATUS_ALIVE, STATUS_MOVING, status_word};
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{ACKED, RETENTION, segment_len};
use crosslane_wire::zcopy::DESCRIPTOR;
use crosslane_wire::{BufferId, CircuitId, Reach, Tuple, WaiterId, Way};
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

/// The number of this thread.
pub(crate) fn tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// Numbers that look random.
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// The largest of [`Self::size`].
    pub(crate) const MOST: usize = 300_000;

    pub(crate) fn size(&mut self) -> usize {
        let most = [60, 3000, 70_000, Self::MOST as u64][usize::try_from(self.below(4)).unwrap()];
        usize::try_from(self.below(most) + 1).unwrap()
    }
}

/// One generation as a daemon has it: what its own program reads, and what it writes.
struct Memory {
    number: u32,
    ring_max: u64,
    rx_key: u64,
    tx_key: u64,
    retained: bool,
    limit: u64,
    arrived: u64,
    inbound: OwnedFd,
    outbound: OwnedFd,
    /// The same for all generations of an end.
    retention: OwnedFd,
}

/// Buffers that either program has shared: their memory, bytes, and what may be done with it.
type Shelf = Mutex<HashMap<BufferId, (OwnedFd, u64, Reach)>>;

/// A daemon, for its one program.
#[derive(Debug)]
pub(crate) struct Host {
    /// The state of its program's end, until the test is over.
    view: Mutex<Option<StateView>>,
    pub(crate) status: AtomicU32,
    client: bool,
    /// What segments say of how long a store may be under way, ns. Here they land at once.
    posted_ns: u32,
    generations: Mutex<Vec<Memory>>,
    shelf: &'static Shelf,
    /// Far buffers that its program has asked for.
    pub(crate) asked: AtomicU32,
    /// Far waiters that were rung.
    pub(crate) rung: Mutex<Vec<WaiterId>>,
    /// The stream moves when the program next asks for a buffer, in the middle of its call.
    pub(crate) meanwhile: Mutex<Option<Mover>>,
}

impl core::fmt::Debug for Mover {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} moves", self.moves)
    }
}

impl core::fmt::Debug for Memory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "generation {} limit {} arrived {}", self.number, self.limit, self.arrived)
    }
}

impl Memory {
    fn segments(&self, posted_ns: u32) -> Segments {
        let len = segment_len(self.ring_max);
        Segments {
            generation: self.number,
            ring_max: self.ring_max,
            rx_key: self.rx_key,
            tx_key: self.tx_key,
            inbound: Inbound::sealed(&self.inbound, len).unwrap(),
            outbound: Outbound::sealed(&self.outbound, len).unwrap(),
            way: if self.retained { Way::RELAYED } else { Way::DIRECT },
            retention: Some(Retention::map(&self.retention).unwrap()),
            posted_out_ns: posted_ns,
            posted_in_ns: posted_ns,
        }
    }
}

impl Daemon for Host {
    fn next(&self, _: CircuitId, _: u64, generation: u32) -> Result<Next, ResumeError> {
        let all = self.generations.lock().unwrap();
        let next = all.iter().find(|memory| memory.number > generation).ok_or(ResumeError::Never)?;
        let newest = Some(next.number) == all.last().map(|last| last.number);
        let segments = next.segments(self.posted_ns);
        Ok(Next {
            segments,
            newest,
            limit: next.limit,
            arrived: if newest { next.arrived } else { u64::MAX },
        })
    }

    fn wake(&self, _: CircuitId, _: u64, waiter: WaiterId) -> bool {
        self.rung.lock().unwrap().push(waiter);
        true
    }

    fn export_buffer(&self, _: CircuitId, _: u64, located: &Located) -> Result<(), BufferError> {
        let memory = located.share(|fd| fd.try_clone_to_owned().unwrap()).ok_or(BufferError::Never)?;
        self.shelf.lock().unwrap().insert(located.id, (memory, located.len, located.reach));
        Ok(())
    }

    fn far_buffer(&self, _: CircuitId, _: u64, buffer: BufferId) -> Result<FarBuffer, BufferError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(mut mover) = self.meanwhile.lock().unwrap().take() {
            mover.jump(1 << 20, false, None);
        }
        let shelf = self.shelf.lock().unwrap();
        let (memory, len, reach) = shelf.get(&buffer).ok_or(BufferError::Never)?;
        FarBuffer::map(memory, *len, *reach).map_err(|_| BufferError::Never)
    }
}

impl Host {
    fn new(client: bool, posted_ns: u32, shelf: &'static Shelf) -> &'static Self {
        let (_, memory) = SharedState::create().unwrap();
        Box::leak(Box::new(Self {
            view: Mutex::new(Some(StateView::new(memory).unwrap())),
            status: AtomicU32::new(0),
            client,
            posted_ns,
            generations: Mutex::new(Vec::new()),
            shelf,
            asked: AtomicU32::new(0),
            rung: Mutex::new(Vec::new()),
            meanwhile: Mutex::new(None),
        }))
    }

    fn grant(&self, generation: usize) -> Grant {
        let address = |port| std::net::SocketAddr::from(([10, 86, 0, 1], port));
        Grant {
            circuit: CircuitId(1),
            token: 2,
            tuple: Tuple { client: address(1), server: address(2) },
            client: self.client,
            status: 0,
            segments: self.generations.lock().unwrap()[generation].segments(self.posted_ns),
            state: SharedState::open(self.state()).unwrap(),
            twin: false,
        }
    }

    /// The end as its first process has it.
    fn begin(&'static self) -> End {
        let grant = self.grant(0);
        End::prepare(&grant);
        End::begin(grant, &self.status, self).unwrap()
    }

    /// The memory of its program's state.
    pub(crate) fn state(&self) -> OwnedFd {
        let view = self.view.lock().unwrap();
        view.as_ref().expect("the test goes on").memory().try_clone().unwrap()
    }

    /// Where its program reads: the ring's number, and the place.
    fn receiver(&self) -> Option<(u32, Cursor)> {
        self.view.lock().unwrap().as_ref().expect("the test goes on").receiver()
    }

    /// The end as another process has it that knows this generation first.
    pub(crate) fn hold(&'static self, generation: usize) -> End {
        End::resume(self.grant(generation), &self.status, self)
    }

    fn newest(&self) -> u32 {
        self.generations.lock().unwrap().last().map_or(0, |last| last.number)
    }

    fn say(&self, generation: u32, reason: u32) {
        self.status.store(status_word(generation, reason), Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// What has arrived in the newest ring; less by records that are lost, if `lose`, which the program has not seen.
    pub(crate) fn count(&self, lose: Option<&mut Dice>) -> u64 {
        let all = self.generations.lock().unwrap();
        let last = all.last().unwrap();
        let ring = Inbound::sealed(&last.inbound, segment_len(last.ring_max)).unwrap();
        let fresh = Cursor::fresh(last.ring_max, last.rx_key, last.limit);
        loop {
            let start = self.place(last).unwrap_or(fresh);
            let most = start.arrived(&ring);
            let mut ends = vec![start.units()];
            let mut cursor = start;
            while let Ok(Some(header)) = cursor.look(&ring)
                && cursor.units() < most
            {
                cursor.pass(header);
                ends.push(cursor.units());
            }
            let after = self.place(last).unwrap_or(fresh);
            if after.position() == start.position() && after.generation() == start.generation() {
                // The program may be at work on the first record.
                let least = 1.min(ends.len() - 1);
                let choices = (ends.len() - least) as u64;
                return match lose {
                    Some(dice) => ends[least + usize::try_from(dice.below(choices)).unwrap()],
                    None => most,
                };
            }
        }
    }

    /// Units up to the end of the record that the program reads.
    pub(crate) fn first(&self) -> u64 {
        let all = self.generations.lock().unwrap();
        let last = all.last().unwrap();
        let ring = Inbound::sealed(&last.inbound, segment_len(last.ring_max)).unwrap();
        let mut cursor = self.place(last).unwrap();
        let header = cursor.look(&ring).unwrap().unwrap();
        cursor.pass(header);
        cursor.units()
    }

    /// Where the program reads in the newest ring, if it is there already.
    fn place(&self, last: &Memory) -> Option<Cursor> {
        let (generation, cursor) = self.receiver()?;
        let cursor = (generation == last.number).then_some(cursor)?;
        Some(cursor.checked(last.ring_max, last.rx_key).expect("an honest program"))
    }
}

/// A stream's two ends, client first.
pub(crate) struct Rig {
    pub(crate) ends: [End; 2],
    pub(crate) hosts: [&'static Host; 2],
    moves: u64,
}

impl Rig {
    pub(crate) fn new(ring_max: u64, retained: bool) -> Self {
        Self::with_stores(ring_max, retained, 0)
    }

    /// As [`Self::new`], where stores may be under way so long, ns.
    pub(crate) fn with_stores(ring_max: u64, retained: bool, posted_ns: u32) -> Self {
        let shelf: &'static Shelf = Box::leak(Box::default());
        let hosts = [true, false].map(|client| Host::new(client, posted_ns, shelf));
        add(hosts, 0, ring_max, retained, [0, 0]);
        Self { ends: hosts.map(Host::begin), hosts, moves: 0 }
    }

    /// Pushes an announcement of the client's, whatever it says, behind its other records.
    pub(crate) fn announce(&self, kind: Kind, descriptor: &[u8; DESCRIPTOR as usize], carried: &[u8]) {
        assert!(self.try_announce(kind, descriptor, carried), "no room");
    }

    /// As [`Self::announce`], if the client may send and there is room.
    pub(crate) fn try_announce(
        &self,
        kind: Kind,
        descriptor: &[u8; DESCRIPTOR as usize],
        carried: &[u8],
    ) -> bool {
        let [near, far] = self.hosts.map(|host| host.generations.lock().unwrap());
        let (near, far) = (near.last().unwrap(), far.last().unwrap());
        let ring = Outbound::sealed(&far.inbound, segment_len(far.ring_max)).unwrap();
        let credits = Inbound::sealed(&near.inbound, segment_len(near.ring_max)).unwrap();
        let producer = &self.ends[0].shared().producer;
        producer.push_announcement(&ring, &credits, kind, descriptor, carried, 0).unwrap_or(false)
    }

    /// What was shared is had by nobody any more who has not mapped it.
    pub(crate) fn unshare_all(&self) {
        self.hosts[0].shelf.lock().unwrap().clear();
    }

    /// Keys of the marks that the server writes, and that the client does.
    pub(crate) fn keys(&self) -> [u64; 2] {
        let all = self.hosts[0].generations.lock().unwrap();
        let last = all.last().unwrap();
        [last.rx_key, last.tx_key]
    }

    /// Another handle to what moves, for a thread.
    pub(crate) fn mover(&self) -> Mover {
        Mover { hosts: self.hosts, moves: self.moves }
    }
}

impl Drop for Rig {
    /// The test is over. Ends never go, and so their hosts do not; the descriptors that they have open do.
    fn drop(&mut self) {
        for host in self.hosts {
            if let Ok(mut generations) = host.generations.lock() {
                generations.clear();
            }
            if let Ok(mut view) = host.view.lock() {
                drop(view.take());
            }
        }
        if let Ok(mut shelf) = self.hosts[0].shelf.lock() {
            shelf.clear();
        }
    }
}

/// What moves a rig's stream.
pub(crate) struct Mover {
    hosts: [&'static Host; 2],
    moves: u64,
}

impl Mover {
    /// The circuit is lost.
    pub(crate) fn lose(&self) {
        self.hosts.iter().for_each(|host| host.say(host.newest(), STATUS_MOVING));
    }

    /// Another one is there; records are lost if there is `dice`.
    pub(crate) fn find(&mut self, ring_max: u64, retained: bool, mut dice: Option<&mut Dice>) {
        let arrived = self.hosts.map(|host| host.count(dice.as_deref_mut()));
        self.find_with(ring_max, retained, arrived, arrived);
    }

    /// The same, with what the daemons say to their own program (`limits`) and what is said to the far one.
    pub(crate) fn find_with(&mut self, ring_max: u64, retained: bool, limits: [u64; 2], arrived: [u64; 2]) {
        self.moves += 1;
        let number = self.hosts[0].newest() + 1 + u32::try_from(self.moves % 2).unwrap();
        let numbers = add(self.hosts, number, ring_max, retained, limits);
        for (host, far) in self.hosts.into_iter().zip([1, 0]) {
            let mut all = host.generations.lock().unwrap();
            all.last_mut().unwrap().arrived = arrived[far];
        }
        self.hosts.iter().for_each(|host| host.say(numbers, STATUS_ALIVE));
    }

    pub(crate) fn jump(&mut self, ring_max: u64, retained: bool, dice: Option<&mut Dice>) {
        self.lose();
        self.find(ring_max, retained, dice);
    }

    /// What was consumed has landed, as the hosts between tell the senders, who count from the circuit's start.
    pub(crate) fn land(&self) {
        for (host, far) in self.hosts.into_iter().zip([1, 0]) {
            let landed = self.hosts[far].receiver();
            let Some((_, cursor)) = landed else { continue };
            let base = host.generations.lock().unwrap().last().unwrap().arrived;
            self.forge(usize::from(!host.client), ACKED, cursor.units().saturating_sub(base));
        }
    }

    /// Stores a word of what the end with this number reads, as its far side would.
    pub(crate) fn forge(&self, end: usize, word: usize, value: u64) {
        let all = self.hosts[end].generations.lock().unwrap();
        let last = all.last().unwrap();
        let out = Outbound::sealed(&last.inbound, segment_len(last.ring_max)).unwrap();
        out.store_u64(word, value);
    }
}

/// One more generation for both.
fn add(hosts: [&'static Host; 2], number: u32, ring_max: u64, retained: bool, limits: [u64; 2]) -> u32 {
    let len = segment_len(ring_max);
    let fds = [new_segment("to-client", len).unwrap(), new_segment("to-server", len).unwrap()];
    for (index, host) in hosts.into_iter().enumerate() {
        let key = |index: usize| u64::from(number) * 100 + 10 + index as u64;
        let mut generations = host.generations.lock().unwrap();
        let retention = match generations.last() {
            Some(last) => last.retention.try_clone().unwrap(),
            None => new_segment("retention", RETENTION).unwrap(),
        };
        generations.push(Memory {
            number,
            ring_max,
            rx_key: key(index),
            tx_key: key(1 - index),
            retained,
            limit: limits[index],
            arrived: 0,
            inbound: fds[index].try_clone().unwrap(),
            outbound: fds[1 - index].try_clone().unwrap(),
            retention,
        });
    }
    number
}

/// Byte number `at` of every stream here.
pub(crate) fn byte(at: u64) -> u8 {
    u8::try_from((at ^ at >> 8 ^ at >> 16) & 0xff).unwrap()
}

pub(crate) fn bytes(from: u64, count: usize) -> Vec<u8> {
    (from..).take(count).map(byte).collect()
}

pub(crate) fn send(end: &End, bytes: &[u8]) -> Result<usize, Failure> {
    end.try_send(tid(), &[IoSlice::new(bytes)], 0).map(|moved| moved.bytes)
}

pub(crate) fn receive(end: &End, count: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0; count];
    let moved = end.try_receive(tid(), &mut [IoSliceMut::new(&mut bytes)])?;
    bytes.truncate(moved.bytes);
    Ok(bytes)
}
