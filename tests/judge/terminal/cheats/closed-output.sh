# closes all that it could be heard on, and never ends
# agent seconds: 1
exec <&- >&- 2>&-
sleep infinity
