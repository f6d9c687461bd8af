# What a server can open: one word per way, the error's name where it is refused.
import ctypes, errno, json, os, signal, socket, subprocess, sys

libc = ctypes.CDLL(None, use_errno=True)


def word(attempt):
    try:
        attempt()
        return "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")


def opened(family, kind, protocol=0):
    return word(lambda: socket.socket(family, kind, protocol).close())


def in_child(attempt):
    pid = os.fork()
    if pid == 0:
        word(attempt)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def fast_open():
    # Connects by sending, on a socket that the process would have to open first.
    with socket.socket() as s:
        s.sendto(b"x", 0x20000000, ("127.0.0.1", 9))


def main():
    ring = ctypes.create_string_buffer(256)
    program = "import socket\ntry: socket.socket(); print('ok')\nexcept OSError as e: print(e.errno)"
    ways = {
        "tcp4": opened(socket.AF_INET, socket.SOCK_STREAM),
        "tcp6": opened(socket.AF_INET6, socket.SOCK_STREAM),
        "udp": opened(socket.AF_INET, socket.SOCK_DGRAM),
        "raw": opened(socket.AF_INET, socket.SOCK_RAW, 1),
        "packet": opened(socket.AF_PACKET, socket.SOCK_RAW),
        "vsock": opened(40, socket.SOCK_STREAM),
        "smc": opened(43, socket.SOCK_STREAM),
        "alg": opened(38, socket.SOCK_SEQPACKET),
        "netlink_generic": opened(socket.AF_NETLINK, socket.SOCK_RAW, 16),
        "netlink_route": opened(socket.AF_NETLINK, socket.SOCK_RAW, 0),
        "unix": opened(socket.AF_UNIX, socket.SOCK_STREAM),
        "unix_pair": word(lambda: [s.close() for s in socket.socketpair()]),
        "interfaces": word(socket.if_nameindex),
        "fast_open": word(fast_open),
        "io_uring": word(lambda: call(425, 4, ring)),
        "pidfd_getfd": word(lambda: call(438, -1, 0, 0)),
        "child": subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip(),
        "x32": in_child(lambda: call(0x40000000 | 41, 1, 1, 0)),
    }
    status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
    ways["no_new_privs"] = status["NoNewPrivs"].strip()
    print(json.dumps(ways), flush=True)


for line in sys.stdin:
    main()
