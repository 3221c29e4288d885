"""Other machines, servers of this one, and everything two processes can talk through."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket

from .registry import LIBC, attack, checked, connects, named

EPERM, EACCES, ENOENT, ENETUNREACH, EAFNOSUPPORT, EPROTONOSUPPORT = 1, 13, 2, 101, 97, 93


@attack("outside")
def reach_tcp_on_loopback(t):
    return connects(socket.AF_INET, ("127.0.0.1", t["tcp"]))


@attack("outside")
def reach_tcp_on_any_address(t):
    return connects(socket.AF_INET, ("0.0.0.0", t["tcp"]))


@attack("outside")
def reach_tcp_on_mapped_address(t):
    return connects(socket.AF_INET6, ("::ffff:127.0.0.1", t["tcp"]))


@attack("outside")
def reach_tcp_on_loopback_6(t):
    return connects(socket.AF_INET6, ("::1", t["tcp6"]))


@attack("outside")
def reach_udp_on_loopback(t):
    return _is_answered(socket.AF_INET, ("127.0.0.1", t["udp"]), t)


@attack("outside")
def reach_udp_on_loopback_6(t):
    return _is_answered(socket.AF_INET6, ("::1", t["udp6"]), t)


def _is_answered(family, address, t):
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.settimeout(1)
        client.connect(address)
        client.send(t["token"].encode())
        return client.recv(100) == t["token"].encode()


@attack("errno", ENETUNREACH)
def reach_tcp_outside(t):
    return connects(socket.AF_INET, ("192.0.2.1", 80))


@attack("errno", ENETUNREACH, 99)
def reach_tcp_outside_6(t):
    return connects(socket.AF_INET6, ("2001:db8::1", 80))


@attack("errno", ENETUNREACH)
def reach_udp_outside(t):
    return connects(socket.AF_INET, ("192.0.2.1", 53), socket.SOCK_DGRAM)


@attack("errno", ENETUNREACH)
def reach_the_metadata_service(t):
    return connects(socket.AF_INET, ("169.254.169.254", 80))


@attack("errno", -3, -2)  # EAI_AGAIN, EAI_NONAME
def resolve_a_name(t):
    return bool(socket.getaddrinfo("frog-lsp.example", 80))


@attack("outside")
def see_interfaces_of_the_machine(t):
    return os.readlink("/proc/self/ns/net") == t["network"]


@attack("errno", EPERM, EACCES)
def open_a_raw_socket(t):
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
    return True


@attack("errno", EAFNOSUPPORT)
def open_a_packet_socket(t):
    socket.socket(17, socket.SOCK_RAW, 0)
    return True


@attack("errno", EAFNOSUPPORT)
def open_a_socket_to_the_hypervisor(t):
    socket.socket(40, socket.SOCK_STREAM, 0)
    return True


@attack("errno", EAFNOSUPPORT)
def open_a_socket_to_kernel_ciphers(t):
    socket.socket(38, socket.SOCK_SEQPACKET, 0)
    return True


@attack("errno", EAFNOSUPPORT)
def open_a_bluetooth_socket(t):
    socket.socket(31, socket.SOCK_RAW, 1)
    return True


@attack("errno", EPROTONOSUPPORT)
def load_a_rare_protocol(t):
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)
    return True


@attack("outside")
def listen_to_device_events(t):
    socket.socket(16, socket.SOCK_RAW, 15)
    return True


@attack("errno", EPROTONOSUPPORT)
def listen_to_the_audit(t):
    socket.socket(16, socket.SOCK_RAW, 9)
    return True


@attack("outside")
def talk_to_kernel_families(t):
    socket.socket(16, socket.SOCK_RAW, 16)
    return True


@attack("outside")
def reach_abstract_socket(t):
    return connects(socket.AF_UNIX, "\0" + t["token"])


@attack("outside")
def reach_socket_in_workspace(t):
    return connects(socket.AF_UNIX, t["workspace"] + "/socket")


for _name, _variable in {
    "reach_ssh_agent": "SSH_AUTH_SOCK",
    "reach_desktop_bus": "DBUS_SESSION_BUS_ADDRESS",
    "reach_docker": "DOCKER_HOST",
    "reach_podman": "CONTAINER_HOST",
    "reach_x11": "XAUTHLOCALHOST",
    "reach_wayland": "WAYLAND_DISPLAY",
    "reach_editor": "NVIM",
}.items():
    attack("outside")(named(_name, lambda t, v=_variable: connects(socket.AF_UNIX, t["sockets"][v])))


@attack("outside")
def find_sockets_by_variables(t):
    return any(os.environ.get(name) for name in t["sockets"])


@attack("outside")
def attach_shared_memory_of_the_host(t):
    return checked(LIBC.shmget(t["ipc"], 0, 0)) >= 0


@attack("outside")
def take_semaphore_of_the_host(t):
    return checked(LIBC.semget(t["ipc"], 0, 0)) >= 0


@attack("outside")
def read_message_queue_of_the_host(t):
    return checked(LIBC.msgget(t["ipc"], 0)) >= 0


@attack("outside")
def map_posix_memory_of_the_host(t):
    with open("/dev/shm/" + t["token"], "rb") as file:
        return file.read() == t["token"].encode()


@attack("outside")
def open_posix_queue_of_the_host(t):
    return checked(ctypes.CDLL("librt.so.1", use_errno=True).mq_open(b"/" + t["token"].encode(), 0)) >= 0


@attack("outside")
def reach_socket_in_shown_folder(t):
    return connects(1, t["shown"] + "/socket")


@attack("outside")
def write_to_pipe_in_shown_folder(t):
    pipe = os.open(t["shown"] + "/pipe", os.O_WRONLY | os.O_NONBLOCK)
    try:
        return os.write(pipe, b"x") == 1
    finally:
        os.close(pipe)


@attack("outside")
def meet_a_lock_of_the_host(t):
    """Whoever sees the host's lock could take one that the host waits for."""
    with open(t["shown"] + "/lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
