"""`python landlock_attempts.py FILE PID`: in JSON the errno (0: it worked) of each attempt to change either."""

import ctypes
import fcntl
import json
import os
import socket
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
FILE, VICTIM = sys.argv[1], int(sys.argv[2])
NAME = os.fsencode(FILE)
READ = os.open(FILE, os.O_RDONLY)
FOLDER = os.open(os.path.dirname(FILE), os.O_RDONLY)
TIMES = ctypes.create_string_buffer(b"".join(n.to_bytes(8, "little") for n in (1, 0, 2, 0)))
os.symlink(FILE, "attempted-link")


def call(number, *arguments):
    values = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    if LIBC.syscall(ctypes.c_long(number), *values) < 0:
        raise OSError(ctypes.get_errno(), "")


def datagrams():
    """A pair of datagram sockets could send to every socket with a path."""
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)


def flags():
    number = fcntl.ioctl(READ, 0x80086601, bytes(8))
    fcntl.ioctl(READ, 0x40086602, number)


def a_second_listener():
    """In a child, since a filter is for good: one that allows everything, with a listener."""
    pid = os.fork()
    if pid == 0:
        program = (6).to_bytes(2, "little") + bytes(2) + (0x7FFF0000).to_bytes(4, "little")
        buffer = ctypes.create_string_buffer(program, 8)
        head = (1).to_bytes(8, "little") + ctypes.addressof(buffer).to_bytes(8, "little")
        LIBC.prctl(38, 1, 0, 0, 0)
        os._exit(0 if LIBC.syscall(317, 1, 8, head) >= 0 else ctypes.get_errno())
    number = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if number:
        raise OSError(number, "")


def queue():
    if ctypes.CDLL("librt.so.1", use_errno=True).mq_open(b"/frog-attempt", os.O_CREAT | os.O_RDWR, 0o600, None) < 0:
        raise OSError(ctypes.get_errno(), "")
    ctypes.CDLL("librt.so.1").mq_unlink(b"/frog-attempt")


def removed(get, remove):
    number = get()
    if number < 0:
        raise OSError(ctypes.get_errno(), "")
    remove(number)


ATTEMPTS = {
    "mode": lambda: os.chmod(FILE, 0o644),
    "mode-by-descriptor": lambda: os.fchmod(READ, 0o644),
    "mode-by-proc": lambda: os.chmod(f"/proc/self/fd/{READ}", 0o644),
    "mode-by-link": lambda: os.chmod("attempted-link", 0o644),
    "mode-by-folder": lambda: os.chmod("file", 0o644, dir_fd=FOLDER),
    "mode-2": lambda: call(452, -100, NAME, 0o644, 0),
    "mode-empty-path": lambda: call(452, READ, b"", 0o644, 0x1000),
    "times": lambda: os.utime(FILE, (1, 1)),
    "times-by-descriptor": lambda: os.utime(READ, (1, 1)),
    "times-of-a-link-target": lambda: os.utime("attempted-link"),
    "times-old": lambda: call(235, NAME, TIMES),
    "times-older": lambda: call(132, NAME, TIMES),
    "owner": lambda: os.chown(FILE, -1, os.getgid()),
    "owner-of-link": lambda: os.lchown(FILE, os.getuid(), -1),
    "owner-by-descriptor": lambda: os.fchown(READ, os.getuid(), -1),
    "attribute": lambda: os.setxattr(FILE, "user.frog", b"x"),
    "attribute-by-descriptor": lambda: os.setxattr(READ, "user.frog", b"x"),
    "reading-attributes": lambda: os.listxattr(FILE),
    "hard-link": lambda: os.link(FILE, "attempted-hard-link"),
    "emptying": lambda: os.truncate(FILE, os.stat(FILE).st_size),
    "flags": flags,
    "datagrams": datagrams,
    "unix-socket": lambda: socket.socket(socket.AF_UNIX),
    "a-second-listener": a_second_listener,
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, VICTIM, 19),
    "affinity": lambda: os.sched_setaffinity(VICTIM, os.sched_getaffinity(VICTIM)),
    "limits": lambda: call(302, VICTIM, 7, None, ctypes.create_string_buffer(16)),
    "shm": lambda: removed(lambda: LIBC.shmget(0, 4096, 0o1600), lambda n: LIBC.shmctl(n, 0, None)),
    "sem": lambda: removed(lambda: LIBC.semget(0, 1, 0o1600), lambda n: LIBC.semctl(n, 0, 0)),
    "msg": lambda: removed(lambda: LIBC.msgget(0, 0o1600), lambda n: LIBC.msgctl(n, 0, None)),
    "queue": queue,
}


def attempt(do):
    try:
        do()
    except OSError as error:
        return error.errno
    return 0


print(json.dumps({name: attempt(do) for name, do in ATTEMPTS.items()}))
