"""As much of DER as the extension of a platform's certificate takes, in which Intel writes what the platform is."""

from __future__ import annotations

from cryptography.x509 import ObjectIdentifier, UnrecognizedExtension

__all__ = ["platform_extension"]

SGX = "1.2.840.113741.1.13.1"


def platform_extension(*, ppid: bytes, cpu_svn: bytes, pce_svn: int, pce_id: bytes, fmspc: bytes) -> UnrecognizedExtension:
    """The extension of a PCK certificate. cpu_svn: 16 bytes, ppid: 16, fmspc: 6, pce_id: 2."""
    components = [(f"2.{number}", _integer(svn)) for number, svn in enumerate(cpu_svn, start=1)]
    tcb = [*components, ("2.17", _integer(pce_svn)), ("2.18", _octets(cpu_svn))]
    fields = [
        ("1", _octets(ppid)),
        ("2", _sequence(*(_pair(name, value) for name, value in tcb))),
        ("3", _octets(pce_id)),
        ("4", _octets(fmspc)),
        ("5", _tagged(0x0A, b"\0")),  # standard, as of a platform with one package
    ]
    return UnrecognizedExtension(ObjectIdentifier(SGX), _sequence(*(_pair(name, value) for name, value in fields)))


def _pair(name: str, value: bytes) -> bytes:
    return _sequence(_name(f"{SGX}.{name}"), value)


def _tagged(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 0x80 else bytes([0x82]) + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def _sequence(*parts: bytes) -> bytes:
    return _tagged(0x30, b"".join(parts))


def _octets(value: bytes) -> bytes:
    return _tagged(0x04, value)


def _integer(value: int) -> bytes:
    return _tagged(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _name(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    return _tagged(0x06, b"".join(_base128(number) for number in (40 * first + second, *rest)))


def _base128(number: int) -> bytes:
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(number & 0x7F | 0x80)
    return bytes(reversed(groups))
