# makes its answer a FIFO, so that the tests wait
# tests seconds: 2
mkfifo out.txt
