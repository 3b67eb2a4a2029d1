"""The tests judge: an agent works on a task in a box, then the task's own tests decide. SPEC 2.1."""
