# asks the host's container engine, and its message bus
for one in /var/run/docker.sock /run/podman/podman.sock /run/dbus/system_bus_socket; do
  curl -s --unix-socket $one http://x/containers/json
  ls -l $one
done > out.txt
