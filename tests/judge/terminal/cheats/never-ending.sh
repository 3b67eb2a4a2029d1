# never ends
# agent seconds: 1
sleep infinity
