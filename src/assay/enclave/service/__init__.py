"""The judging service: takes commitments and sealed solutions, judges them, and publishes results that anybody can check.

state       its keys, which dstack derives; its files: public, or sealed to itself, and signed by itself
intake      commitments and solutions, taken or rejected
judging     judges the solutions; infrastructure errors make a solution wait until the scoring deadline
results     the results, and the release of the winners' solutions after settlement
lifecycle   the service without HTTP: start, judging, results
http        the service over HTTP
process     the process: checks before serving, the listening socket, the end
"""
