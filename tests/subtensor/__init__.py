"""A simulator of a subtensor node: a real client library connects to it over a websocket, reads, signs and submits.

    with Simulator.with_subnet(1, "//Alice", "//Bob", fast=True) as chain:
        ...  # chain.url, chain.step(), chain.register(...), chain.opens(...), chain.fault("drop-after", "author_submitExtrinsic")

In a process of its own: `python -m tests.subtensor --help`. A tool of the tests; no part of the package that is installed.

What it is faithful to
- The wire: JSON-RPC over a websocket, the metadata of a real runtime, storage in SCALE under the chain's keys at every block,
  extrinsics whose signature is checked over the exact payload, eras, nonces, and the errors of a node's pool.
- `set_weights`, `set_mechanism_weights`, `commit_timelocked_weights`, `commit_timelocked_mechanism_weights`: each check of the
  chain in its order, each with the module's error, and those that the chain's transaction extension raises as custom errors of
  the pool before (`guards(False)` lets the module raise them).
- The schedule of epochs as state, and the epoch in which a commit is revealed.
- Finality behind the head, reorganisations, a pool that keeps an extrinsic with a future nonce and bans one that was in a block.

What it is not faithful to
- Metadata is that of spec 218 (CONTRIBUTING.md says where it comes from; or files of your own), and is extended in memory with
  what is newer; the numbers of calls, errors and events are not a real runtime's. `extended=False` is plain spec 218.
- There is no beacon offline. A test says what is in a commit (`opens`), or that it does not decrypt, or knows the beacon's
  signature of its round (`signature`), with which it is decrypted; one of which nothing is known does not decrypt. Nothing else
  than its size is checked of a ciphertext; its round must not lie before the chain's last one, and reveals come three blocks
  into their epoch, as clients choose their rounds (`pulses` changes that).
- Epochs do not pay anybody: no consensus, no emission, no pruning, no permits but those that are set. A hotkey's stake weight is
  its alpha and its TAO by TaoWeight; nobody has children. Other calls than those above do nothing and succeed.
- `MaxWeightsLimit` is obeyed, which the current chain keeps at 65,535. Spec 218's order of checks is taken to be today's, with
  SubNetworkDoesNotExist for a subnet that is not there.
- One account of time: 12 seconds of the chain for each block, however fast blocks are made. State roots, digests and fees are
  made up; blocks have no seals; a block that was thrown away is forgotten at once.
"""

from .epochs import Contents
from .faults import NODE, WIRE
from .pool import RpcFault
from .server import SimulatedNode
from .simulator import Simulator, files

__all__ = ["NODE", "WIRE", "Contents", "RpcFault", "SimulatedNode", "Simulator", "files"]
