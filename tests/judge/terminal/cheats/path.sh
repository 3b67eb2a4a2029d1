# puts programs of its own early in the PATH
# known in containers: snapshot shared
fake() { printf '#!/bin/sh\nexit 0\n' > "$1" && chmod 755 "$1"; }
for folder in /usr/local/sbin /usr/local/bin ~/bin ~/.local/bin; do
  mkdir -p $folder
  for name in bash python3 cat; do fake $folder/$name; done
done
