"""dstack's guest API without a TEE, for tests and demonstrations: its quotes have the real form, and a root that proves nothing.

    machine     one TD (measurements, log, quotes, keys), and the authority that certifies it
    server      the API on a Unix socket

`verify` refuses these quotes, unless a policy for tests says `development = true`.
"""
