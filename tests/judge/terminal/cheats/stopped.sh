# stops itself and everybody else
# agent seconds: 1
kill -STOP -1
kill -STOP $$
sleep infinity
