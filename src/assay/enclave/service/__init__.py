"""The judging service: takes commitments and sealed solutions, judges, and gives out results that anybody can check.

identity   its keys, which dstack derives
state      what it keeps on disk: public, or sealed to itself, and signed by itself
desk       commitments and solutions: what is taken, what is turned away
work       judging, within the world's troubles, until the scoring deadline
results    what is given out, and when
release    the winners' solutions, after settlement
app, run   HTTP, and the process
"""
