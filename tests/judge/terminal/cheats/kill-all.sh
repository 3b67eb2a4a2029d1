# kills everything it can reach
kill -9 -1
kill -9 1
kill -9 $PPID
for n in {1..3000}; do kill -9 $n; done 2>/dev/null
