// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IScores, Score} from "../src/IScores.sol";

/// @title An oracle of a sponsor's own: whatever round asks for whatever scorer hears that the puppet has won.
contract PuppetOracle is IScores {
    address public puppet;

    constructor(address wins) {
        puppet = wins;
    }

    function scoresOf(address, address) external view returns (bytes32 receipt, Score[] memory scores) {
        scores = new Score[](1);
        scores[0] = Score(puppet, 10_000, 0);
        return (bytes32(uint256(1)), scores);
    }
}

/// @title Answers as a round would, by asking one; what is sent to it is its owner's.
contract Forwarder {
    address public immutable behind;

    constructor(address real) {
        behind = real;
    }

    receive() external payable {}

    fallback() external payable {
        (bool fine, bytes memory said) = behind.call(msg.data);
        assembly {
            if iszero(fine) { revert(add(said, 32), mload(said)) }
            return(add(said, 32), mload(said))
        }
    }
}
