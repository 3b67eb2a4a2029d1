# prints without end
yes x
