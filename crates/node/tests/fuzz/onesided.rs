//! One-sided access: a requester that sends anything to an owner of memory, and an owner that answers anything. Memory
//! that the requester has no key for stays as it is, and no call panics or waits for ever.

use crate::world::{LONG, TestPort, World, until};
use bolero::TypeGenerator;
use crosslane::fabric::{Fabric, Listener};
use crosslane::memory::{Access, Memory, Region, RemoteRegion};
use crosslane::peer::Peer;
use crosslane::stream::Stream;
use crosslane_wire::access::{ANSWER, Answer, Command, HANDSHAKE, Place};
use std::io::IoSlice;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

/// Bytes of each region.
const LEN: u64 = 4096;
/// The same.
const BYTES: usize = 4096;
/// What the region holds that nobody may write.
const KEPT: u8 = 0x5a;
/// How long a requester waits for a liar.
const SHORT: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, TypeGenerator)]
enum Input {
    /// To an honest owner.
    Requests { greets: bool, steps: Vec<Request> },
    /// From an honest requester, who is answered this.
    Answers { greets: bool, wants: Vec<Want>, lies: Vec<Lie> },
}

#[derive(Clone, Debug, TypeGenerator)]
enum Request {
    Send(Kind, Where, u64),
    Flip(Kind, Where, u64, u8),
    Bytes(Vec<u8>),
    Data(u16),
    Receive(u16),
    Withdraw,
    Share(u8),
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Kind {
    Put,
    PutShort,
    Get,
    FetchAdd,
    CompareSwap,
    Fence,
    Notify,
}

/// A place that the requester has a key for, or one that it has none for.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Where {
    Open(u16),
    Edge(u8),
    Kept(u16),
    Any { region: u32, key: u64, offset: u64 },
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Want {
    Put(u16),
    Get(u16),
    FetchAdd,
    CompareSwap,
    Notify,
    Fence,
    Flush,
}

#[derive(Clone, Debug, TypeGenerator)]
enum Lie {
    Done(u8),
    DoneAny(u64),
    Value(u8, u64),
    Data {
        number: u8,
        offset: u16,
        len: u16,
    },
    DataAny {
        number: u64,
        offset: u64,
        len: u32,
    },
    Bytes(Vec<u8>),
    Zeros(u16),
    /// Reads what was asked.
    Read(u16),
}

struct Stage {
    world: World,
    near: Fabric,
    memory: Memory,
    kept: Region,
    open: Region,
    key: RemoteRegion,
    honest: Peer,
    kept_key: RemoteRegion,
    liar: Listener,
}

impl Stage {
    fn new() -> Self {
        let (near, far) =
            ([TestPort { cable: "c", listens: true }], [TestPort { cable: "c", listens: false }]);
        let mut world = World::start(&[&near, &far], "");
        let fabric = |number| until("a daemon", || Fabric::open_at(&world.control(number)).ok());
        let (near, far) = (fabric(1), fabric(2));
        let address = "127.86.0.2:0".parse().unwrap();
        let memory = Memory::serve(far, address).unwrap();
        let liar = far.listen(address).unwrap();
        let (kept, open) = (memory.register(LEN).unwrap(), memory.register(LEN).unwrap());
        kept.write(0, &[KEPT; BYTES]).unwrap();
        let (key, kept_key) = (open.share(Access::ALL).unwrap(), kept.share(Access::READ).unwrap());
        let mut honest = until("a connection", || Peer::connect(near, memory.address()).ok());
        honest.set_timeout(Some(LONG));
        world.join_honest(2);
        Self { world, near, memory, kept, open, key, honest, kept_key, liar }
    }

    fn try_all(&mut self, input: &Input) {
        let _recent = self.world.recent.begin(input);
        match input {
            Input::Requests { greets, steps } => self.ask(*greets, steps),
            Input::Answers { greets, wants, lies } => self.answer(*greets, wants, lies),
        }
        let mut bytes = [0; BYTES];
        self.honest.get(&self.kept_key, 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == KEPT), "memory without a key was written");
        while self.memory.notices().next().is_some() {}
        self.world.check();
    }

    fn ask(&mut self, greets: bool, steps: &[Request]) {
        let Ok(stream) = self.near.connect_within(self.memory.address(), LONG) else { return };
        if greets {
            send(&stream, &HANDSHAKE);
        }
        for step in steps {
            match step {
                Request::Send(kind, place, value) => send(&stream, &self.command(*kind, *place, *value)),
                Request::Flip(kind, place, value, bit) => {
                    let mut bytes = self.command(*kind, *place, *value);
                    let at = usize::from(bit / 8) % bytes.len();
                    bytes[at] ^= 1 << (bit % 8);
                    send(&stream, &bytes);
                }
                Request::Bytes(bytes) => send(&stream, bytes),
                Request::Data(len) => send(&stream, &vec![0xbb; usize::from(*len)]),
                Request::Receive(len) => drop(stream.try_receive(&mut vec![0; usize::from(*len)])),
                Request::Withdraw => self.open.withdraw(&self.key),
                Request::Share(rights) => self.share(*rights),
            }
        }
        self.share(7);
    }

    fn share(&mut self, rights: u8) {
        let access = Access { read: rights & 1 != 0, write: rights & 2 != 0, atomic: rights & 4 != 0 };
        self.open.withdraw(&self.key);
        if let Ok(key) = self.open.share(access) {
            self.key = key;
        }
    }

    fn command(&self, kind: Kind, place: Where, value: u64) -> Vec<u8> {
        let (open, kept) = (&self.key, &self.kept_key);
        let place = match place {
            Where::Open(at) => Place { region: open.id, key: open.key, offset: u64::from(at) % LEN },
            Where::Edge(less) => Place { region: open.id, key: open.key, offset: LEN - u64::from(less) },
            // The right to read is all that anybody has there.
            Where::Kept(at) => Place { region: kept.id, key: kept.key, offset: u64::from(at) % LEN },
            Where::Any { region, key, offset } => Place { region, key, offset },
        };
        let len = u32::try_from(value % (1 << 17)).unwrap();
        let command = match kind {
            Kind::Put => Command::Put { place, len },
            Kind::PutShort => Command::PutShort { place, len: len % 20, bytes: [0xcc; 16] },
            Kind::Get => Command::Get { place, len: value % (1 << 20) },
            Kind::FetchAdd => Command::FetchAdd { place, value },
            Kind::CompareSwap => Command::CompareSwap { place, expected: 0, new: value },
            Kind::Fence => Command::Fence,
            Kind::Notify => Command::Notify { place, value },
        };
        command.encode().to_vec()
    }

    fn answer(&self, greets: bool, wants: &[Want], lies: &[Lie]) {
        let (near, address) = (self.near, self.liar.address());
        std::thread::scope(|scope| {
            scope.spawn(|| want_all(near, address, wants));
            if let Ok(Some(stream)) = self.liar.accept_within(LONG) {
                if greets {
                    send(&stream, &HANDSHAKE);
                }
                lies.iter().for_each(|lie| tell(&stream, lie));
            }
        });
    }
}

/// What goes without waiting.
fn send(stream: &Stream, bytes: &[u8]) {
    let _ = stream.try_send(&[IoSlice::new(bytes)], 0);
}

fn want_all(near: Fabric, address: std::net::SocketAddr, wants: &[Want]) {
    let Ok(mut peer) = Peer::connect_within(near, address, SHORT * 5) else { return };
    peer.set_timeout(Some(SHORT));
    let region = RemoteRegion { id: 1, key: 2, len: LEN };
    for want in wants.iter().take(8) {
        let begin = Instant::now();
        match want {
            Want::Put(len) => drop(peer.put(&region, 0, &vec![1; usize::from(*len) % BYTES])),
            Want::Get(len) => drop(peer.get(&region, 0, &mut vec![0; usize::from(*len) % BYTES])),
            Want::FetchAdd => drop(peer.fetch_add(&region, 8, 1)),
            Want::CompareSwap => drop(peer.compare_swap(&region, 8, 1, 2)),
            Want::Notify => drop(peer.notify(&region, 3)),
            Want::Fence => drop(peer.fence()),
            Want::Flush => drop(peer.flush()),
        }
        assert!(begin.elapsed() < LONG, "{want:?} took {:?}", begin.elapsed());
    }
}

fn tell(stream: &Stream, lie: &Lie) {
    let bytes: Vec<u8> = match lie {
        Lie::Done(upto) => Answer::Done { upto: (*upto).into() }.encode().into(),
        Lie::DoneAny(upto) => Answer::Done { upto: *upto }.encode().into(),
        Lie::Value(number, value) => {
            Answer::Value { number: (*number).into(), value: *value }.encode().into()
        }
        Lie::Data { number, offset, len } => {
            let (number, offset) = ((*number).into(), (*offset).into());
            let mut bytes = Answer::Data { number, offset, len: (*len).into() }.encode().to_vec();
            bytes.resize(ANSWER + usize::from(*len), 7);
            bytes
        }
        Lie::DataAny { number, offset, len } => {
            Answer::Data { number: *number, offset: *offset, len: *len }.encode().into()
        }
        Lie::Bytes(bytes) => bytes.clone(),
        Lie::Zeros(len) => vec![0; (*len).into()],
        Lie::Read(len) => {
            let _ = stream.try_receive(&mut vec![0; usize::from(*len)]);
            return;
        }
    };
    send(stream, &bytes);
}

#[test]
fn anything_of_requesters_and_owners_of_memory() {
    let stage = AssertUnwindSafe(std::cell::RefCell::new(Stage::new()));
    bolero::check!()
        .with_shrink_time(Duration::ZERO)
        .with_type::<Input>()
        .for_each(|input| stage.borrow_mut().try_all(input));
    let stage = stage.borrow();
    let mut bytes = [0; BYTES];
    stage.kept.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == KEPT));
    stage.world.settle();
}
