//! The ivshmem server of a cable: QEMU's devices of both ends get the cable's memory from it, and a way to interrupt each other.
//!
//! Each machine is a *client* with a number, and has one *bell*, an eventfd that interrupts it. The server tells every client of every
//! other's number and bell, and of those that leave. A message is a number of eight bytes, little endian, with a descriptor or without
//! (QEMU's `docs/specs/ivshmem-spec`). Clients have nothing to say: what they send is never read, only their end is seen.

use super::cable;
use crate::LabError;
use crate::plan::Cable;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{retry_on_intr, write};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Interrupts of a client: what `-device ivshmem-doorbell` must have as `vectors`.
pub(super) const VECTORS: u32 = 1;
/// Version of the protocol.
const VERSION: i64 = 0;
/// In place of a client's number: the descriptor is the cable's memory.
const MEMORY: i64 = -1;
/// Most clients of a cable: two ends, and as many that have not left yet.
const MOST: usize = 4;

/// Socket of the server of `cable` of the lab in `folder`.
pub(super) fn path(folder: &Path, cable: &Cable) -> PathBuf {
    folder.join(format!("c{}.sock", cable.number))
}

/// The server of one cable.
#[derive(Debug)]
pub(crate) struct Server {
    /// The cable's.
    pub(crate) number: u8,
    listener: UnixListener,
    memory: File,
    clients: Vec<Client>,
    /// The next client's. None is given twice: QEMU (7.2) frees what it has of a client that leaves, and stores to it when a client of the
    /// same number joins.
    next: RangeInclusive<u16>,
}

#[derive(Debug)]
struct Client {
    number: u16,
    stream: UnixStream,
    bell: OwnedFd,
}

impl Client {
    /// Sends a message, without waiting for a client that does not read; whether it went.
    fn tell(&self, number: i64, descriptor: Option<BorrowedFd<'_>>) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fits = control.push(SendAncillaryMessage::ScmRights(descriptor.as_slice()));
        if descriptor.is_some() && !fits {
            return false;
        }
        let (bytes, flags) = (number.to_le_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        let sent = retry_on_intr(|| sendmsg(&self.stream, &[IoSlice::new(&bytes)], &mut control, flags));
        sent == Ok(bytes.len())
    }

    /// Tells this client of `other`.
    fn meet(&self, other: &Self) -> bool {
        self.tell(other.number.into(), Some(other.bell.as_fd()))
    }

    /// Interrupts the machine. QEMU has made its eventfd a blocking one, in which one interrupt that waits is enough.
    fn ring(&self) {
        let mut room = [PollFd::new(&self.bell, PollFlags::OUT)];
        if poll(&mut room, Some(&Default::default())).is_ok_and(|ready| ready > 0) {
            let _ = write(&self.bell, &1u64.to_ne_bytes());
        }
    }
}

impl Server {
    /// The server of `cable` of the lab in `folder`, whose memory is there.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub(crate) fn new(folder: &Path, cable: &Cable) -> Result<Self, LabError> {
        Self::of(cable.number, &path(folder, cable), &cable::path(folder, cable))
    }

    fn of(number: u8, socket: &Path, memory: &Path) -> Result<Self, LabError> {
        let memory = OpenOptions::new().read(true).write(true).open(memory);
        let memory = memory.map_err(LabError::io("open the memory of a cable"))?;
        let listener = UnixListener::bind(socket)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(LabError::io(format!("listen at {}", socket.display())))?;
        Ok(Self { number, listener, memory, clients: Vec::new(), next: 0..=u16::MAX })
    }

    /// What to wait for before the next [`Server::look`].
    pub(crate) fn events(&self) -> impl Iterator<Item = PollFd<'_>> {
        let clients = self.clients.iter().map(|client| PollFd::new(&client.stream, PollFlags::RDHUP));
        std::iter::once(PollFd::new(&self.listener, PollFlags::IN)).chain(clients)
    }

    /// Has those leave that have ended, then lets in those that have come. Does not wait.
    pub(crate) fn look(&mut self) {
        let gone = self.ended();
        self.dismiss(gone);
        while let Ok((stream, _)) = self.listener.accept() {
            self.admit(stream).unwrap_or_else(|error| eprintln!("crosslane-keeper: a cable's end: {error}"));
        }
    }

    /// Has both ends look at the cable's memory.
    pub(crate) fn ring(&self) {
        self.clients.iter().for_each(Client::ring);
    }

    /// Numbers of the clients that have ended.
    fn ended(&self) -> Vec<u16> {
        let mut events: Vec<PollFd<'_>> = self.events().collect();
        if retry_on_intr(|| poll(&mut events, Some(&Default::default()))).is_err() {
            return Vec::new();
        }
        let clients = self.clients.iter().zip(&events[1..]);
        clients.filter(|(_, event)| !event.revents().is_empty()).map(|(client, _)| client.number).collect()
    }

    /// Lets a client in, and introduces it and the others to each other. One that is too many is sent away.
    fn admit(&mut self, stream: UnixStream) -> io::Result<()> {
        if self.clients.len() == MOST {
            return Err(io::Error::other("it has enough of them"));
        }
        let number = self.next.next().ok_or_else(|| io::Error::other("there are no numbers left"))?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let new = Client { number, stream, bell };
        let welcome = new.tell(VERSION, None)
            && new.tell(number.into(), None)
            && new.tell(MEMORY, Some(self.memory.as_fd()))
            && self.clients.iter().all(|other| new.meet(other))
            && new.meet(&new);
        if !welcome {
            return Err(io::Error::other("it went away, or does not read"));
        }
        let deaf = self.clients.iter().filter(|other| !other.meet(&new)).map(|other| other.number).collect();
        self.clients.push(new);
        self.dismiss(deaf);
        Ok(())
    }

    /// Has clients leave, and tells the others, of which those leave, too, that have not read for long.
    fn dismiss(&mut self, mut gone: Vec<u16>) {
        while let Some(number) = gone.pop() {
            self.clients.retain(|client| client.number != number);
            let deaf = self.clients.iter().filter(|client| !client.tell(number.into(), None));
            gone.extend(deaf.map(|client| client.number));
            gone.sort_unstable();
            gone.dedup();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    use std::io::{IoSliceMut, Write};
    use std::os::unix::fs::FileExt;

    /// What a client was told: a number, and whether a descriptor came with it.
    type Told = (i64, bool);

    struct Place {
        folder: tempfile::TempDir,
        server: Server,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("folder");
            let cable = Cable { number: 1, a: 1, b: 2, column: false, beside: 0 };
            cable::create(folder.path(), &cable).expect("memory");
            let server = Server::new(folder.path(), &cable).expect("server");
            Self { folder, server }
        }

        fn join(&mut self) -> UnixStream {
            let client = UnixStream::connect(self.folder.path().join("c1.sock")).expect("connect");
            self.server.look();
            client
        }
    }

    /// The next message, if one has come; `Err` at the end.
    fn next(client: &UnixStream) -> Result<Option<(i64, Option<OwnedFd>)>, ()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let (mut control, mut bytes) = (RecvAncillaryBuffer::new(&mut space), [0; 8]);
        let received = recvmsg(client, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::DONTWAIT);
        match received.map(|message| message.bytes) {
            Ok(8) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            _ => return Err(()),
        }
        let descriptor = control.drain().find_map(|item| match item {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        Ok(Some((i64::from_le_bytes(bytes), descriptor)))
    }

    fn all(client: &UnixStream) -> Vec<(i64, Option<OwnedFd>)> {
        std::iter::from_fn(|| next(client).expect("connected")).collect()
    }

    fn told(client: &UnixStream) -> Vec<Told> {
        all(client).iter().map(|(number, descriptor)| (*number, descriptor.is_some())).collect()
    }

    /// How often a bell was rung since the last time.
    fn rung(bell: &OwnedFd) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(bell, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    #[test]
    fn server_introduces_clients_to_each_other() {
        let mut place = Place::new();
        let first = place.join();
        let to_first = all(&first);
        let numbers: Vec<i64> = to_first.iter().map(|it| it.0).collect();
        assert_eq!(numbers, [0, 0, -1, 0], "version, own number, memory, own bell");
        let memory = File::from(to_first[2].1.as_ref().expect("memory").try_clone().expect("clone"));
        memory.write_all_at(b"x", 4096).expect("write");
        let path = place.folder.path().join("c1.memory");
        assert_eq!(std::fs::read(path).expect("read")[4096], b'x', "the cable's own memory");
        let second = place.join();
        let to_second = all(&second);
        let numbers: Vec<i64> = to_second.iter().map(|it| it.0).collect();
        assert_eq!(numbers, [0, 1, -1, 0, 1], "version, own number, memory, the other's bell, own bell");
        let to_first_again = all(&first);
        assert_eq!(to_first_again.iter().map(|it| it.0).collect::<Vec<_>>(), [1]);
        let (own, others) = (to_first[3].1.as_ref().expect("own"), to_second[3].1.as_ref().expect("other"));
        write(others, &1u64.to_ne_bytes()).expect("ring");
        assert_eq!((rung(own), rung(own)), (1, 0), "who rings the other's bell is heard");
        place.server.ring();
        let own_of_second = to_second[4].1.as_ref().expect("own");
        assert_eq!((rung(own), rung(own_of_second)), (1, 1));
    }

    #[test]
    fn server_gives_one_that_comes_back_a_new_number_and_bell() {
        let mut place = Place::new();
        let (first, second) = (place.join(), place.join());
        let (_, old) = (all(&first), all(&second));
        drop(first);
        place.server.look();
        assert_eq!(told(&second), [(0, false)], "it has left");
        let first = place.join();
        assert_eq!(told(&first), [(0, false), (2, false), (-1, true), (1, true), (2, true)]);
        assert_eq!(told(&second), [(2, true)]);
        // The end of the other is seen when it is there again.
        drop(second);
        let second = place.join();
        assert_eq!(told(&first), [(1, false), (3, true)]);
        let new = all(&second);
        place.server.ring();
        let bell =
            |of: &[(i64, Option<OwnedFd>)]| rung(of.last().and_then(|it| it.1.as_ref()).expect("bell"));
        assert_eq!((bell(&old), bell(&new)), (0, 1));
    }

    #[test]
    fn server_reads_nothing_of_what_clients_say() {
        let mut place = Place::new();
        let (mut first, second) = (place.join(), place.join());
        first.set_nonblocking(true).expect("flag");
        while first.write(&[0xff; 4096]).is_ok() {}
        let mut events: Vec<PollFd<'_>> = place.server.events().collect();
        assert_eq!(poll(&mut events, Some(&Default::default())), Ok(0), "it is not even woken");
        drop(events);
        place.server.look();
        assert_eq!(place.server.clients.len(), 2);
        told(&second);
        first.shutdown(std::net::Shutdown::Write).expect("shutdown");
        place.server.look();
        assert_eq!(told(&second), [(0, false)], "who will say nothing more has left");
    }

    #[test]
    fn server_lets_in_so_many_and_drops_who_does_not_read() {
        let mut place = Place::new();
        let clients: Vec<UnixStream> = (0..MOST).map(|_| place.join()).collect();
        assert_eq!(next(&place.join()).map(drop), Err(()), "one too many");
        drop(clients);
        let (deaf, other) = (place.join(), place.join());
        let numbers = |place: &Place| place.server.clients.iter().map(|it| it.number).collect::<Vec<_>>();
        let number = numbers(&place)[0];
        let reads = (0..10_000).take_while(|_| {
            drop(place.join());
            told(&other);
            numbers(&place).contains(&number)
        });
        assert!(reads.count() < 10_000, "it was never dropped");
        while next(&deaf).is_ok_and(|message| message.is_some()) {}
        assert_eq!(next(&deaf).map(drop), Err(()));
    }
}
