"""`assay issues`: what participants and validators of a competition of kind points need beside `assay run`."""
