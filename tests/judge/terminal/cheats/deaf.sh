# ignores every signal it can, and never ends
# agent seconds: 1
trap '' TERM HUP INT QUIT ALRM
while :; do :; done
