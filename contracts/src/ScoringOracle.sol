// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {NoncesKeyed} from "@openzeppelin/contracts/utils/NoncesKeyed.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {IRound} from "./IRound.sol";
import {IScores, Score} from "./IScores.sol";

/// @title What scorers say of rounds, each once and whole.
/// @notice A scorer either sends its scores itself, or signs them (EIP-712), so that anybody may pay the gas.
/// @dev Nobody has a role here: there is no owner, no admin, no upgrade, no constructor argument, no money. Scores are kept by
/// round and scorer; a round reads those of the one scorer that it was made with, so nobody else's can reach it. Without
/// arguments the code alone gives the address (CREATE2): on every chain the same, and a round knows it without being told.
contract ScoringOracle is IScores, EIP712, NoncesKeyed {
    /// @notice Most agents of one round: what fits into a transaction with room to spare.
    uint256 public constant MAX_AGENTS = 200;
    /// @notice A whole score.
    uint256 public constant BPS = 10_000;

    bytes32 private constant SCORE_TYPE = keccak256("Score(address agent,uint16 bps,bytes32 attestation)");
    bytes32 private constant SCORES_TYPE = keccak256(
        "Scores(address round,bytes32 receipt,Score[] scores,uint64 nonce,uint256 deadline)"
        "Score(address agent,uint16 bps,bytes32 attestation)"
    );

    mapping(address round => mapping(address scorer => bytes32)) private _receipts;
    mapping(address round => mapping(address scorer => Score[])) private _scores;

    /// @notice A round has its scores. They follow as one `Scored` each, agents ascending.
    /// @param round The round's contract.
    /// @param receipt Digest of the receipt that the scores are of.
    /// @param scorer Who made them.
    /// @param count How many agents there are.
    event ScoresSubmitted(address indexed round, bytes32 indexed receipt, address indexed scorer, uint256 count);
    /// @notice One agent's score.
    /// @param round The round's contract.
    /// @param agent Who handed the solution in.
    /// @param bps The score, 0 … 10 000.
    /// @param attestation 0 where nothing attests where the judge ran; else the digest of the published attestation. See Score.
    event Scored(address indexed round, address indexed agent, uint16 bps, bytes32 attestation);

    /// @notice The round has this scorer's scores already, and keeps them.
    error AlreadySubmitted(address round);
    /// @notice A submission names its receipt.
    error NoReceipt();
    /// @notice More agents than MAX_AGENTS.
    error TooManyAgents(uint256 count);
    /// @notice A score above 10 000.
    error ScoreTooHigh(address agent, uint16 bps);
    /// @notice The agent is there twice.
    error DuplicateAgent(address agent);
    /// @notice The agents do not ascend by address.
    error NotAscending(address agent);
    /// @notice The agent has not committed to anything in this round.
    error UnknownAgent(address round, address agent);
    /// @notice The agent has no score of this scorer's in this round.
    error NoScore(address round, address agent);
    /// @notice The signature was good until then.
    error SignatureExpired(uint256 deadline);
    /// @notice The signature is not the scorer's, or not of these scores here.
    error BadSignature(address scorer);

    /// @notice Without arguments, so that the address follows from the code alone.
    constructor() EIP712("Assay ScoringOracle", "2") {}

    /// @notice Submit the scores of a round, as its scorer.
    /// @param round The round's contract.
    /// @param receipt Digest of the receipt that the scores are of.
    /// @param scores The agents by ascending address, each with a score that is agreed. None is a result too: nobody has one.
    function submit(address round, bytes32 receipt, Score[] calldata scores) external {
        _submit(msg.sender, round, receipt, scores);
    }

    /// @notice Submit scores that a scorer has signed, as anybody.
    /// @param scorer Who signed: a key, or a contract that answers ERC-1271.
    /// @param round The round's contract.
    /// @param receipt Digest of the receipt that the scores are of.
    /// @param scores As for `submit`.
    /// @param nonce `nonceOf(scorer, round)` when it was signed.
    /// @param deadline The last second at which the signature is good.
    /// @param signature Over `digestOf` all of this.
    function submitSigned(
        address scorer,
        address round,
        bytes32 receipt,
        Score[] calldata scores,
        uint64 nonce,
        uint256 deadline,
        bytes calldata signature
    ) external {
        if (block.timestamp > deadline) revert SignatureExpired(deadline);
        _useCheckedNonce(scorer, _key(round), nonce);
        bytes32 digest = digestOf(round, receipt, scores, nonce, deadline);
        if (!SignatureChecker.isValidSignatureNowCalldata(scorer, digest, signature)) revert BadSignature(scorer);
        _submit(scorer, round, receipt, scores);
    }

    /// @notice Make what the sender has signed for a round, and nobody has sent yet, worthless.
    /// @param round The round's contract.
    function revoke(address round) external {
        _useNonce(msg.sender, _key(round));
    }

    /// @notice What a scorer signs: EIP-712, bound to this chain and this contract.
    /// @param round The round's contract.
    /// @param receipt Digest of the receipt that the scores are of.
    /// @param scores As for `submit`.
    /// @param nonce `nonceOf(scorer, round)`.
    /// @param deadline The last second at which the signature is good.
    /// @return The digest that is signed.
    function digestOf(address round, bytes32 receipt, Score[] calldata scores, uint64 nonce, uint256 deadline)
        public
        view
        returns (bytes32)
    {
        bytes32[] memory hashes = new bytes32[](scores.length);
        for (uint256 i = 0; i < scores.length; ++i) {
            hashes[i] = keccak256(abi.encode(SCORE_TYPE, scores[i].agent, scores[i].bps, scores[i].attestation));
        }
        bytes32 all = keccak256(abi.encodePacked(hashes));
        return _hashTypedDataV4(keccak256(abi.encode(SCORES_TYPE, round, receipt, all, nonce, deadline)));
    }

    /// @notice The nonce that a scorer's next signature for a round carries. Each round counts for itself.
    /// @param scorer Who signs.
    /// @param round The round's contract.
    /// @return From 0.
    function nonceOf(address scorer, address round) external view returns (uint64) {
        return uint64(nonces(scorer, _key(round)));
    }

    /// @notice The domain of the signatures, as EIP-712 separates it.
    /// @return The separator on this chain.
    function domainSeparator() external view returns (bytes32) {
        return _domainSeparatorV4();
    }

    /// @inheritdoc IScores
    function scoresOf(address round, address scorer) external view returns (bytes32 receipt, Score[] memory scores) {
        return (_receipts[round][scorer], _scores[round][scorer]);
    }

    /// @notice One agent's score in a round.
    /// @param round The round's contract.
    /// @param scorer Whose score; the round's own one is `scorer()` there.
    /// @param agent Who handed the solution in.
    /// @return bps The score; it reverts if there is none, which is no score of 0.
    /// @return attestation 0 where nothing attests where the judge ran; else the digest of the published attestation.
    /// @return receipt Digest of the receipt that the score is of.
    function scoreOf(address round, address scorer, address agent)
        external
        view
        returns (uint16 bps, bytes32 attestation, bytes32 receipt)
    {
        Score[] storage there = _scores[round][scorer];
        uint256 low = 0;
        uint256 high = there.length;
        while (low < high) {
            uint256 middle = (low + high) / 2;
            if (there[middle].agent < agent) low = middle + 1;
            else high = middle;
        }
        if (low == there.length || there[low].agent != agent) revert NoScore(round, agent);
        return (there[low].bps, there[low].attestation, _receipts[round][scorer]);
    }

    function _submit(address scorer, address round, bytes32 receipt, Score[] calldata scores) private {
        if (_receipts[round][scorer] != 0) revert AlreadySubmitted(round);
        if (receipt == 0) revert NoReceipt();
        if (scores.length > MAX_AGENTS) revert TooManyAgents(scores.length);
        IRound(round).requireScores(scorer);

        _receipts[round][scorer] = receipt;
        emit ScoresSubmitted(round, receipt, scorer, scores.length);
        address last = address(0);
        for (uint256 i = 0; i < scores.length; ++i) {
            Score calldata one = scores[i];
            if (one.bps > BPS) revert ScoreTooHigh(one.agent, one.bps);
            if (one.agent == last && i > 0) revert DuplicateAgent(one.agent);
            if (one.agent < last) revert NotAscending(one.agent);
            if (IRound(round).committedAt(one.agent) == 0) revert UnknownAgent(round, one.agent);
            last = one.agent;
            _scores[round][scorer].push(one);
            emit Scored(round, one.agent, one.bps, one.attestation);
        }
    }

    /// @dev Nonces are counted for each round, so that a signature that nobody sends does not hold up those for other rounds.
    function _key(address round) private pure returns (uint192) {
        return uint192(uint160(round));
    }
}
