"""Mounts a file system with one file in the folder named by the first argument, in a mount namespace of its own, and serves
it: the file can be opened, and nothing else that is asked of it is ever answered. A second process opens it, sends from its
pages by a connected TCP socket, which holds that socket's lock for good, and passes file and socket to standard input.

The process that serves has only that to do: what is stuck is freed by killing it, since the kernel then answers for the file.
"""
import ctypes, os, signal, socket, struct, sys, threading

LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, BATCH_FORGET = 1, 2, 3, 14, 15, 18, 25, 26, 42
CLONE_NEWNS, MS_REC, MS_PRIVATE, PROT_READ, MAP_PRIVATE, PR_SET_PDEATHSIG = 0x20000, 0x4000, 0x40000, 1, 2, 1
ROOT, FILE, PAGE = 1, 2, 4096

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p


def check(failed):
    if failed:
        sys.exit(os.strerror(ctypes.get_errno()))


def attributes(node, mode):
    return struct.pack("<6Q10I", node, PAGE, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, PAGE, 0)


ANSWERS = {
    INIT: struct.pack("<4I2H4I28x", 7, 31, 0, 0, 12, 9, PAGE, 1, 0, 0),
    LOOKUP: struct.pack("<4Q2I", FILE, 0, 3600, 0, 0, 0) + attributes(FILE, 0o100444),
    OPEN: struct.pack("<Q2I", 1, 0, 0),
}


def victim(device, folder, reading):
    """Nothing here may ask for the file's attributes, as Python's own mmap does."""
    os.close(device)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    file = os.open(folder + "/file", os.O_RDONLY)
    listener = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
    page = libc.mmap(None, PAGE, PROT_READ, MAP_PRIVATE, file, ctypes.c_long(0))
    check(page == ctypes.c_void_p(-1).value)
    send = lambda: libc.send(near.fileno(), ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0)
    threading.Thread(target=send, daemon=True).start()
    os.read(reading, 1)
    socket.send_fds(socket.socket(fileno=0), [b"stuck"], [file, near.fileno()])
    signal.pause()


def serve(device, said):
    while True:
        request = os.read(device, 1 << 17)
        _, code, unique, node = struct.unpack_from("<IIQQ", request)
        answer = ANSWERS.get(code)
        if code == GETATTR and node == ROOT:
            answer = struct.pack("<Q2I", 3600, 0, 0) + attributes(ROOT, 0o40755)
        if answer is not None:
            os.write(device, struct.pack("<IiQ", 16 + len(answer), 0, unique) + answer)
        elif code == READ:
            os.write(said, b"r")
        elif code not in (FORGET, BATCH_FORGET, GETATTR, RELEASE, FLUSH):
            os.write(device, struct.pack("<IiQ", 16, -38, unique))


def main():
    folder = sys.argv[1]
    signal.alarm(120)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    device = os.open("/dev/fuse", os.O_RDWR)
    check(libc.unshare(CLONE_NEWNS))
    check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    check(libc.mount(b"crosslane-test", folder.encode(), b"fuse", 0, options.encode()))
    reading, said = os.pipe()
    if os.fork() == 0:
        victim(device, folder, reading)
    os.close(0)
    serve(device, said)


main()
