"""The pages of a competition: a board, participants, validators and epochs, drawn from settlements, and the static report.

    season.read(folder)  ─▶  Season  ─▶  board · participant · validators · epoch (views)  ─▶  pages (HTML and JSON)  ─▶  report

A view is a plain dict that a template prints. It reads what the settlement and its story say and computes no number of its own;
floats appear only as places in a drawing.
"""
