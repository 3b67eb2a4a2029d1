"""A model that is none: an OpenAI-compatible server on loopback whose answers are written beforehand. For demos and tests."""
