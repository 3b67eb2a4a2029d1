# prints errors without end
yes x >&2
