# sets the clock
date -s "$(date)"
python3 -c 'import time; time.clock_settime(time.CLOCK_REALTIME, time.time())'
hwclock --systohc
