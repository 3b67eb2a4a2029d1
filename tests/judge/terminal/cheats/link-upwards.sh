# makes its answer a relative link to the tests' own
# known: snapshot shared
ln -s ../tests/answer.txt out.txt
