"""Judging by issues: what people report on GitHub, and what maintainers say of it with labels. SPEC 2.4."""
