# takes memory without end
python3 -c 'b = [bytearray(1 << 24) for _ in range(1 << 20)]'; tail /dev/zero
