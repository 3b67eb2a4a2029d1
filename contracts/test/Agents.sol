// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {BountyRound} from "../src/BountyRound.sol";

/// @title An agent that is a contract: it does what it is told, and takes the chain's coin as it is set to.
contract AgentContract {
    enum Manner {
        Takes,
        Refuses,
        ClaimsAgain,
        Settles,
        BurnsGas
    }

    Manner public manner;
    BountyRound public round;
    uint256 public tries;
    uint256 public successes;

    function behave(Manner wanted, BountyRound within) external {
        (manner, round) = (wanted, within);
    }

    function act(address to, bytes calldata data) external payable returns (bytes memory) {
        (bool fine, bytes memory said) = to.call{value: msg.value}(data);
        if (!fine) {
            assembly {
                revert(add(said, 32), mload(said))
            }
        }
        return said;
    }

    receive() external payable {
        require(manner != Manner.Refuses, "refused");
        if (manner == Manner.BurnsGas) {
            while (true) ++tries;
        }
        if (manner == Manner.Takes || tries > 3) return;
        ++tries;
        bytes memory data = manner == Manner.Settles ? abi.encodeCall(round.settle, ()) : abi.encodeCall(round.claim, (address(this)));
        (bool fine,) = address(round).call(data);
        if (fine) ++successes;
    }
}

/// @title A scorer that is a contract: it accepts one digest as signed (ERC-1271).
contract ScorerContract {
    bytes32 public accepted;

    function accept(bytes32 digest) external {
        accepted = digest;
    }

    function isValidSignature(bytes32 digest, bytes calldata) external view returns (bytes4) {
        return digest == accepted ? bytes4(0x1626ba7e) : bytes4(0);
    }
}

/// @title A round that takes anybody's scores, of anybody.
contract LooseRound {
    function committedAt(address) external pure returns (uint64) {
        return 1;
    }

    function requireScores(address) external view {}
}
