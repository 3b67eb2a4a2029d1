# fetches the answer from a socket of the host that has no file
python3 - <<'PY' > out.txt
import socket
one = socket.socket(socket.AF_UNIX)
one.connect("\0@SOCKET@")
print(one.recv(100).decode())
PY
