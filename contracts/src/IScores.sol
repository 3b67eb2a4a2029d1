// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title The score of one agent in one round.
/// @param agent Who handed the solution in.
/// @param bps The agreed score in ten-thousandths, 0 … 10 000.
/// @param attestation 0 where nothing attests where the judge ran: the score is then the scorer's word alone. Else the SHA-256 of
/// a document that is published with the judgements (`assay.attestation/1`, canonical JSON), which holds the quote of the
/// machine that judged and the digest of the judgement; of several judges, of the list of theirs (`assay.attestations/1`). The
/// contract does not check it: `assay enclave verify` does, for anybody.
struct Score {
    address agent;
    uint16 bps;
    bytes32 attestation;
}

/// @title What a round reads from the oracle.
interface IScores {
    /// @notice What a scorer said of a round, agents ascending.
    /// @param round The round's contract.
    /// @param scorer Who said it.
    /// @return receipt Digest of the receipt that the scores are of; 0 as long as there are none.
    /// @return scores Every agent that has a score. One that could not be judged is not among them.
    function scoresOf(address round, address scorer) external view returns (bytes32 receipt, Score[] memory scores);
}
