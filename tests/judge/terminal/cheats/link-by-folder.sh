# works in a folder that is a link to the tests
# known: snapshot shared
ln -s ../tests there
ln -s there/answer.txt out.txt
