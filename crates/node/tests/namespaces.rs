//! Programs of other network namespaces: their addresses are not the daemon's, also if they look like them, and a kernel that
//! cannot tell is known and said.

mod support;

use crosslane_wire::control::Refusal;
use crosslane_wire::local::{Plain, Reply};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::thread::UnshareFlags;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Output, Stdio};
use support::*;

/// Becomes its arguments, for which `getsockopt(SOL_SOCKET, SO_NETNS_COOKIE)` fails with `ENOPROTOOPT`.
const FILTER: &str = r"
import ctypes, os, platform, struct, sys
number = {'x86_64': 55, 'aarch64': 209}[platform.machine()]
load, equal, end = 0x20, 0x15, 0x06
steps = [(load, 0, 0, 0), (equal, 0, 5, number), (load, 0, 0, 24), (equal, 0, 3, 1), (load, 0, 0, 32),
         (equal, 0, 1, 71), (end, 0, 0, 0x50000 | 92), (end, 0, 0, 0x7fff0000)]
code = b''.join(struct.pack('HBBI', *step) for step in steps)
class Program(ctypes.Structure):
    _fields_ = [('count', ctypes.c_ushort), ('code', ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
program = Program(len(steps), code)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):
    sys.exit('no filter: %d' % ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
";

/// Connects to a control socket, and prints the first answer, to nothing.
const KNOCK: &str = r"
import socket, sys
session = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
session.settimeout(0.5)
session.connect(sys.argv[1])
try:
    print(session.recv(65536))
except TimeoutError:
    print('heard nothing, as who says nothing')
";

/// A socket of another network namespace, bound to an address whether that is there or not.
fn socket_elsewhere(local: SocketAddr) -> Option<OwnedFd> {
    let make = move || {
        // Of this thread alone.
        #[expect(deprecated, reason = "the safe form has no other effect here")]
        rustix::thread::unshare(UnshareFlags::NEWNET).ok()?;
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_ip_freebind(&socket, true).unwrap();
        rustix::net::bind(&socket, &local).unwrap();
        Some(socket)
    };
    let socket = std::thread::spawn(make).join().unwrap();
    if socket.is_none() {
        println!("SKIPPED: this user may make no network namespaces");
    }
    socket
}

#[test]
fn address_of_another_namespace_is_not_the_daemons_host() {
    let lab = Lab::pair();
    let listeners = [1, 2].map(|host| TcpListener::bind(format!("127.86.0.{host}:0")).unwrap());
    let mut servers = [1, 2].map(|host| Client::hello(&lab.control(host), "server"));
    servers.iter_mut().zip(&listeners).for_each(|(server, listener)| server.listen(listener));
    let mut client = Client::hello(&lab.control(1), "client");
    let mut connect = |local: &str, listener: &TcpListener| {
        let socket = socket_elsewhere(local.parse().unwrap())?;
        let remote = listener.local_addr().unwrap();
        let request = crosslane_wire::local::Request::Connect { remote };
        Some(client.circuit(&request, socket.as_fd()).map(drop))
    };
    // As if it were host 1, to another host and to host 1 itself.
    let Some(there) = connect("127.86.0.1:0", &listeners[1]) else { return };
    // These addresses are of its own loopback, where nobody listens.
    let nobody = || Err(Reply::Plain { why: Plain::Refused(Refusal::NoListener) });
    assert_eq!(there, nobody());
    assert_eq!(connect("127.86.0.1:0", &listeners[0]), Some(nobody()));
    assert!(lab.status(1)["circuits"].as_array().unwrap().is_empty());
}

fn knock(lab: &Lab, elsewhere: bool) -> Output {
    let words = ["python3", "-c", KNOCK];
    let mut command = if elsewhere { Command::new("unshare") } else { Command::new(words[0]) };
    let words = if elsewhere { &words[..] } else { &words[1..] };
    command.args(elsewhere.then_some("--net")).args(words).arg(lab.control(1)).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn kernel_that_cannot_tell_namespaces_apart_is_said_and_programs_of_others_are_refused() {
    let python = Command::new("python3").arg("-V").output();
    if !may_be_others() || python.is_err() {
        println!("SKIPPED: needs root and python3");
        return;
    }
    for filtered in [true, false] {
        let mut lab = Lab::new();
        lab.configure(1, 1, &[], "");
        let daemon = env!("CARGO_BIN_EXE_crosslaned");
        let mut command = Command::new(if filtered { "python3" } else { daemon });
        if filtered {
            command.args(["-c", FILTER, daemon]);
        }
        let log = std::fs::File::create(lab.path("1.log")).unwrap();
        lab.start_by(1, command, Stdio::from(log));
        assert_eq!(lab.status(1)["namespaces"], !filtered);
        let said = lab.log(1).contains("the kernel cannot tell network namespaces apart");
        assert_eq!(said, filtered, "{}", lab.log(1));
        let (here, elsewhere) = (text(&knock(&lab, false)), text(&knock(&lab, true)));
        assert!(here.contains("heard nothing"), "{here}");
        assert_eq!(
            elsewhere.contains("in another network namespace than the daemon"),
            filtered,
            "{elsewhere}"
        );
    }
}
