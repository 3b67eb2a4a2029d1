"""How good the output of a plan is, by four measures that ask no model. SPEC 2.2."""
