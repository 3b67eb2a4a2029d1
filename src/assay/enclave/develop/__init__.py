"""dstack's guest API without a TEE, for tests and demonstrations: real quotes in form, of a development root, so worth nothing.

    authority   a root, what it certifies, and its collateral
    machine     one TD: its measurements, its log, its quotes and its keys
    server      the API on a Unix socket

`verify` refuses what comes from here, unless a policy for tests says `development = true`.
"""
