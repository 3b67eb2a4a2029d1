// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title What the oracle asks of a round before it takes scores for it.
/// @notice A round is a contract; its address is its name.
interface IRound {
    /// @notice When an agent committed to its solution.
    /// @param agent The account that committed.
    /// @return Seconds since 1970; 0 if it never did, and then the round does not know it.
    function committedAt(address agent) external view returns (uint64);

    /// @notice Reverts, with the reason, unless this scorer's scores are taken now.
    /// @param scorer Who made the scores: not necessarily who sends them.
    function requireScores(address scorer) external view;
}
