# fills sockets of every kind that nobody reads
python3 - <<'E'
import socket
kept = []
def fill(family, kind, protocol, name):
    for _ in range(3000):
        try:
            one, other = socket.socket(family, kind, protocol), socket.socket(family, kind, protocol)
            one.bind(name)
            kept.append(one)
            other.setblocking(False)
            for _ in range(4):
                other.sendto(bytes(50_000), one.getsockname())
        except OSError:
            return
fill(16, socket.SOCK_RAW, 2, (0, 0))
fill(socket.AF_INET, socket.SOCK_DGRAM, 136, ("127.0.0.1", 0))
fill(socket.AF_INET, socket.SOCK_DGRAM, 0, ("127.0.0.1", 0))
E
