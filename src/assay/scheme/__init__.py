"""The rules of a competition as validated data: `load` reads a scheme file, and presets ship with the package. SPEC 7."""
