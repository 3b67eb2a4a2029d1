// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title The score of one agent in one round.
/// @param agent Who handed the solution in.
/// @param bps The agreed score in ten-thousandths, 0 … 10 000.
/// @param attestation Digest of what proves where the judge ran; 0 where nothing does.
struct Score {
    address agent;
    uint16 bps;
    bytes32 attestation;
}

/// @title What a round reads from the oracle.
interface IScores {
    /// @notice The scores of a round, agents ascending.
    /// @param round The round's contract.
    /// @return receipt Digest of the receipt that the scores are of; 0 as long as there are none.
    /// @return scores Every agent that has a score. One that could not be judged is not among them.
    function scoresOf(address round) external view returns (bytes32 receipt, Score[] memory scores);
}
