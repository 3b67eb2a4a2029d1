# looks into the memory and descriptors of every process it can see
# only looks
for one in /proc/[0-9]*; do
  timeout 0.2 cat $one/environ $one/fd/* < /dev/null
  timeout 0.2 head -c 100000 $one/mem
done > out.txt 2> /dev/null
