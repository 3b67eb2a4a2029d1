# replaces the links /bin and /lib by folders of its own
# known in containers: snapshot shared
fake() { printf '#!/bin/sh\nexit 0\n' > "$1" && chmod 755 "$1"; }
cd /
mkdir -p mine
fake mine/bash
fake mine/sh
rm -f bin lib lib64
ln -s mine bin
ln -s mine lib
ln -s mine lib64
