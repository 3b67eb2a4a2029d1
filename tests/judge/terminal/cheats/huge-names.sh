# leaves names as long as they may be, folders a thousand deep, and bytes that are no text
n=$(printf 'x%.0s' {1..255})
touch $n
for i in {1..1000}; do mkdir $n && cd $n || break; done
cd /app
touch $'\x01\x02\xff' -- '-rf' '*' ' '
