"""A filter of system calls that namespaces do not hold back, as a program for the kernel.

- Sockets other than local, IP and netlink ones: that of a virtual machine (AF_VSOCK) reaches its host from any network namespace.
  Of netlink only the one about routes, of IP only TCP, UDP and ICMP: what other protocols hold, nobody counts as memory.
- Key rings: one session's keys are shared by everything that was started in it.
- io_uring, bpf, perf_event_open, userfaultfd: large parts of the kernel that no task needs.
- The kernel's log: it tells of other boxes, and a crash writes into it.
- Requests to a file system for what outlives a box: subvolumes and snapshots, which are not removed as folders are, and keys;
  and for another generation number of a file, which a folder that is used again would keep.
- Calls in the manner of another processor, where numbers mean something else.

What is held back fails as if the kernel did not have it. Debuggers work.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["program"]

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _PROCESSOR, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32
"""Offsets in what the kernel shows a filter: the call's number, the processor, the lower halves of the first arguments."""
_LOCAL = 1
_IP = (0, 1, 6, 17, 58)
"""What it takes by itself, ICMP, TCP, UDP, ICMPv6."""
_PROTOCOLS = ((2, _IP), (10, _IP), (16, (0,)))
"""AF_INET, AF_INET6, AF_NETLINK: a socket's family, and the protocols that it may have; local ones have none."""
_REQUESTS = (0x50009401, 0x5000940E, 0x50009417, 0x50009418, 0xC0506617, 0x40087602, 0x40086604)
"""BTRFS_IOC_SNAP_CREATE, _SUBVOL_CREATE, _SNAP_CREATE_V2, _SUBVOL_CREATE_V2, FS_IOC_ADD_ENCRYPTION_KEY, FS_IOC_SETVERSION,
EXT4_IOC_SETVERSION."""


@dataclass(frozen=True)
class _Processor:
    code: int
    socket: int
    ioctl: int
    denied: Mapping[str, int]
    most: int
    """Numbers from here on are of another manner of calling."""


_COMMON = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427}
_PROCESSORS = {
    "x86_64": _Processor(
        0xC000003E, 41, 16,
        {"syslog": 103, "add_key": 248, "request_key": 249, "keyctl": 250, "perf_event_open": 298, "bpf": 321, "userfaultfd": 323}
        | _COMMON,
        0x40000000,
    ),
    "aarch64": _Processor(
        0xC00000B7, 198, 29,
        {"syslog": 116, "add_key": 217, "request_key": 218, "keyctl": 219, "perf_event_open": 241, "bpf": 280, "userfaultfd": 282}
        | _COMMON,
        0x40000000,
    ),
}  # fmt: skip


def program(machine: str | None = None) -> bytes | None:
    """The filter for a processor, this machine's by default, as bubblewrap takes it; None for one that is not known."""
    processor = _PROCESSORS.get(machine or os.uname().machine)
    if processor is None:
        return None
    absent, family, request = (_ERRNO | number for number in (errno.ENOSYS, errno.EAFNOSUPPORT, errno.ENOTTY))
    denied = sorted(processor.denied.values())
    rows: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _PROCESSOR),
        (_JUMP_EQUAL, 1, 0, processor.code),
        (_RETURN, 0, 0, absent),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, processor.most),
        (_RETURN, 0, 0, absent),
    ]
    for number in denied:
        rows += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, absent)]
    rows += [(_JUMP_EQUAL, 0, 2 * len(_REQUESTS) + 2, processor.ioctl), (_LOAD, 0, 0, _SECOND)]
    for number in _REQUESTS:
        rows += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, request)]
    rows.append((_RETURN, 0, 0, _ALLOW))
    rows += [(_JUMP_EQUAL, 1, 0, processor.socket), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _FIRST)]
    rows += [(_JUMP_EQUAL, 0, 1, _LOCAL), (_RETURN, 0, 0, _ALLOW)]
    for number, protocols in _PROTOCOLS:
        rows += [(_JUMP_EQUAL, 0, 2 * len(protocols) + 2, number), (_LOAD, 0, 0, _THIRD)]
        for each in protocols:
            rows += [(_JUMP_EQUAL, 0, 1, each), (_RETURN, 0, 0, _ALLOW)]
        rows.append((_RETURN, 0, 0, _ERRNO | errno.EPROTONOSUPPORT))
    rows.append((_RETURN, 0, 0, family))
    return b"".join(struct.pack("=HBBI", *row) for row in rows)
