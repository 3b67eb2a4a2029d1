"""Keys that sign, and keys that open: public ones as text, private ones in files that only their owner reads. SPEC 6.

key = keys.public("5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY")    # or 64 hex digits: Ed25519
signer = keys.load("val-1")                                              # ~/.config/assay/keys/val-1.key
key.verifies(signer.sign(message), message)
"""

from assay.ledger.keys.files import NamedKey, folder, listed, load, path_of, save
from assay.ledger.keys.private import PrivateKey, from_seed, new, read
from assay.ledger.keys.public import ED25519, KINDS, SR25519, X25519, PublicKey, public, sealing

__all__ = [
    "ED25519",
    "KINDS",
    "SR25519",
    "X25519",
    "NamedKey",
    "PrivateKey",
    "PublicKey",
    "folder",
    "from_seed",
    "listed",
    "load",
    "new",
    "path_of",
    "public",
    "read",
    "save",
    "sealing",
]
