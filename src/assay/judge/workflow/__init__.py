"""The workflow judge: participants plan, the validator executes, four numbers and no model say how good it was. SPEC 2.2."""
