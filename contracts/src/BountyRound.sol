// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Address} from "@openzeppelin/contracts/utils/Address.sol";
import {Create2} from "@openzeppelin/contracts/utils/Create2.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";
import {IRound} from "./IRound.sol";
import {IScores, Score} from "./IScores.sol";
import {Payouts} from "./Payouts.sol";
import {ScoringOracle} from "./ScoringOracle.sol";

/// @title One bounty: a sponsor's deposit, the agents' commitments, and what each gets by the scorer's scores.
/// @notice Opened by the deposit; agents commit until `commitUntil`; scores come until `scoreUntil`. When they are there anybody
/// settles it, and everybody fetches what is his. If none come in time, the deposit goes back to the sponsor.
/// @dev Nothing of it can be changed, by anybody, once it is made. Nobody can move money but to whom the rules give it, and what
/// is not fetched stays there for good. No loop is longer than the oracle's bound on agents, or that on places here.
contract BountyRound is IRound, ReentrancyGuard {
    using SafeERC20 for IERC20;

    /// @notice Most places of a prize split.
    uint256 public constant MAX_PLACES = 32;
    /// @notice Most tiers.
    uint256 public constant MAX_TIERS = 16;
    /// @notice How far ahead deadlines may be: a slip of a digit must not lock money away.
    uint256 public constant MAX_DURATION = 731 days;
    /// @notice Who makes contracts at addresses that follow from their code: the same on nearly every chain.
    address public constant DEPLOYER = 0x4e59b44847b379578588920cA78FbF26c0B4956C;

    /// @notice What a round is made of.
    /// @param bounty Digest of the bounty's terms and rubric.
    /// @param sponsor Who gets what is refunded.
    /// @param token The ERC-20 that it is paid in; 0 for the chain's own coin.
    /// @param deposit What the sponsor puts in, in the smallest unit.
    /// @param scorer The one whose scores count, for good.
    /// @param feeRecipient Who gets the fees.
    /// @param feeBps The fee on each place.
    /// @param thresholdBps The score at which all is released.
    /// @param commitUntil The last second at which agents may commit.
    /// @param scoreUntil The last second at which scores are taken.
    /// @param tiers The best score's share of the threshold → what is released, falling.
    /// @param split The places' shares of what is released.
    struct Terms {
        bytes32 bounty;
        address sponsor;
        address token;
        uint256 deposit;
        address scorer;
        address feeRecipient;
        uint16 feeBps;
        uint16 thresholdBps;
        uint64 commitUntil;
        uint64 scoreUntil;
        Payouts.Tier[] tiers;
        uint16[] split;
    }

    /// @notice Where a round is: made, funded, settled.
    enum State {
        Unfunded,
        Open,
        Settled
    }

    /// @notice A place, and who holds it.
    struct Place {
        address agent;
        uint16 bps;
        uint256 gross;
        uint256 fee;
    }

    /// @notice What scores make of the deposit.
    struct Settlement {
        uint16 tierBps;
        uint256 released;
        Place[] places;
        uint256 fees;
        uint256 refund;
    }

    struct Commitment {
        bytes32 hash;
        uint64 time;
    }

    /// @notice Digest of the bounty's terms and rubric.
    bytes32 public immutable bounty;
    /// @notice Who gets what is refunded.
    address public immutable sponsor;
    /// @notice The ERC-20 that it is paid in; 0 for the chain's own coin.
    address public immutable token;
    /// @notice What the sponsor puts in.
    uint256 public immutable deposit;
    /// @notice Where the scores come from: the ScoringOracle that this code was compiled with, and no other.
    IScores public immutable oracle;
    /// @notice The one whose scores count.
    address public immutable scorer;
    /// @notice Who gets the fees.
    address public immutable feeRecipient;
    /// @notice The fee on each place.
    uint16 public immutable feeBps;
    /// @notice The score at which all is released.
    uint16 public immutable thresholdBps;
    /// @notice The last second at which agents may commit.
    uint64 public immutable commitUntil;
    /// @notice The last second at which scores are taken.
    uint64 public immutable scoreUntil;

    Payouts.Tier[] private _tiers;
    uint16[] private _split;
    mapping(address agent => Commitment) private _commitments;

    /// @notice Where the round is.
    State public state;
    /// @notice How many agents have committed.
    uint256 public commitments;
    /// @notice What an account has to fetch.
    mapping(address account => uint256) public owed;
    /// @notice The sum of what is not fetched yet, and before it is settled the deposit.
    uint256 public held;

    /// @notice The deposit is there, and agents may commit.
    event Funded(address indexed payer, uint256 deposit);
    /// @notice An agent is bound to a solution.
    event Committed(address indexed agent, bytes32 commitment);
    /// @notice The deposit is divided. Nets + fees + refund = deposit.
    /// @param receipt Digest of the receipt whose scores decided; 0 if there were none.
    event Settled(bytes32 indexed receipt, uint16 tierBps, uint256 released, uint256 fees, uint256 refund);
    /// @notice A place, counted from 1. The agent has `gross − fee` to fetch.
    event Placed(uint256 indexed place, address indexed agent, uint16 bps, uint256 gross, uint256 fee);
    /// @notice Somebody fetched what was his.
    event Claimed(address indexed account, address indexed to, uint256 amount);

    /// @notice A field of the terms is not as it must be.
    error BadTerms(string field);
    /// @notice It is funded already.
    error AlreadyFunded();
    /// @notice It is not funded yet, or settled already.
    error NotOpen();
    /// @notice The coin sent is not what is asked for.
    error WrongValue(uint256 expected, uint256 sent);
    /// @notice The token did not deliver what it was told to: it takes a fee, or says what is not so.
    error TokenMoved(uint256 expected, uint256 moved);
    /// @notice Commitments are taken until then, and nothing is settled before.
    error CommitmentsOpen(uint64 commitUntil);
    /// @notice Commitments were taken until then.
    error CommitmentsClosed(uint64 commitUntil);
    /// @notice A commitment is not zero.
    error NoCommitment();
    /// @notice The agent is bound already.
    error AlreadyCommitted(address agent);
    /// @notice Scores are taken after that.
    error ScoresTooEarly(uint64 commitUntil);
    /// @notice Scores were taken until then.
    error ScoresTooLate(uint64 scoreUntil);
    /// @notice This round takes another's scores.
    error NotTheScorer(address scorer);
    /// @notice There are no scores yet, and they may still come until then.
    error NotYet(uint64 scoreUntil);
    /// @notice The account has nothing to fetch.
    error NothingOwed(address account);

    /// @param terms What the round is made of; it is checked whole.
    constructor(Terms memory terms) {
        _check(terms);
        bounty = terms.bounty;
        sponsor = terms.sponsor;
        token = terms.token;
        deposit = terms.deposit;
        oracle = IScores(Create2.computeAddress(0, keccak256(type(ScoringOracle).creationCode), DEPLOYER));
        if (address(oracle).code.length == 0) revert BadTerms("oracle");
        scorer = terms.scorer;
        feeRecipient = terms.feeRecipient;
        feeBps = terms.feeBps;
        thresholdBps = terms.thresholdBps;
        commitUntil = terms.commitUntil;
        scoreUntil = terms.scoreUntil;
        for (uint256 i = 0; i < terms.tiers.length; ++i) {
            _tiers.push(terms.tiers[i]);
        }
        for (uint256 i = 0; i < terms.split.length; ++i) {
            _split.push(terms.split[i]);
        }
    }

    /// @notice Put the deposit in: exactly that, of the chain's own coin with the call, or of the token after an approval.
    /// @dev Anybody may; what is refunded goes to the sponsor. A token that delivers less, or takes a fee, is refused.
    function fund() external payable nonReentrant {
        if (state != State.Unfunded) revert AlreadyFunded();
        if (block.timestamp > commitUntil) revert CommitmentsClosed(commitUntil);
        uint256 due = token == address(0) ? deposit : 0;
        if (msg.value != due) revert WrongValue(due, msg.value);
        state = State.Open;
        held = deposit;
        emit Funded(msg.sender, deposit);
        if (token != address(0)) {
            uint256 before = IERC20(token).balanceOf(address(this));
            IERC20(token).safeTransferFrom(msg.sender, address(this), deposit);
            uint256 moved = _difference(IERC20(token).balanceOf(address(this)), before);
            if (moved != deposit) revert TokenMoved(deposit, moved);
        }
    }

    /// @notice Bind the sender to a solution. Once, and for good.
    /// @dev The commitment hashes the agent's own name with a salt; who copies another's can never open it, and does not keep
    /// the other from committing, since each account has a place of its own.
    /// @param commitment The commitment's 32 bytes.
    function commit(bytes32 commitment) external {
        if (state != State.Open) revert NotOpen();
        if (block.timestamp > commitUntil) revert CommitmentsClosed(commitUntil);
        if (commitment == 0) revert NoCommitment();
        if (_commitments[msg.sender].time != 0) revert AlreadyCommitted(msg.sender);
        _commitments[msg.sender] = Commitment(commitment, uint64(block.timestamp));
        ++commitments;
        emit Committed(msg.sender, commitment);
    }

    /// @notice Divide the deposit by the scorer's scores; by none, if no scores came in time, or nobody committed.
    /// @dev Anybody may, after `commitUntil`; without scores after `scoreUntil`, unless nobody committed. Scores that are there
    /// cannot change, so nobody waits longer for them. Money is only credited here: one account that cannot take it holds nobody
    /// else up.
    function settle() external nonReentrant {
        if (state != State.Open) revert NotOpen();
        if (block.timestamp <= commitUntil) revert CommitmentsOpen(commitUntil);
        (bytes32 receipt, Score[] memory scores) = oracle.scoresOf(address(this), scorer);
        if (receipt == 0) {
            scores = new Score[](0);
            if (commitments != 0 && block.timestamp <= scoreUntil) revert NotYet(scoreUntil);
        }
        Settlement memory found = _settlement(scores);
        state = State.Settled;
        emit Settled(receipt, found.tierBps, found.released, found.fees, found.refund);
        for (uint256 i = 0; i < found.places.length; ++i) {
            Place memory one = found.places[i];
            owed[one.agent] += one.gross - one.fee;
            emit Placed(i + 1, one.agent, one.bps, one.gross, one.fee);
        }
        owed[feeRecipient] += found.fees;
        owed[sponsor] += found.refund;
    }

    /// @notice Fetch what the sender is owed.
    /// @param to Where it goes: another account than one's own, should that one be unable to take it.
    /// @return amount How much it was.
    function claim(address to) external nonReentrant returns (uint256 amount) {
        amount = owed[msg.sender];
        if (amount == 0) revert NothingOwed(msg.sender);
        owed[msg.sender] = 0;
        held -= amount;
        emit Claimed(msg.sender, to, amount);
        if (token == address(0)) {
            Address.sendValue(payable(to), amount);
        } else {
            uint256 before = IERC20(token).balanceOf(address(this));
            IERC20(token).safeTransfer(to, amount);
            uint256 moved = _difference(before, IERC20(token).balanceOf(address(this)));
            if (moved != amount) revert TokenMoved(amount, moved);
        }
    }

    /// @notice What `settle` would make of these scores.
    /// @param scores Scores as the oracle would have them. Agents who have not committed are left out.
    /// @return What each place would get, and what would go back.
    function preview(Score[] memory scores) external view returns (Settlement memory) {
        return _settlement(scores);
    }

    /// @inheritdoc IRound
    function requireScores(address by) external view {
        if (state != State.Open) revert NotOpen();
        if (by != scorer) revert NotTheScorer(by);
        if (block.timestamp <= commitUntil) revert ScoresTooEarly(commitUntil);
        if (block.timestamp > scoreUntil) revert ScoresTooLate(scoreUntil);
    }

    /// @inheritdoc IRound
    function committedAt(address agent) external view returns (uint64) {
        return _commitments[agent].time;
    }

    /// @notice When agents committed.
    /// @param agents Any accounts.
    /// @return times For each, as `committedAt` has it.
    function committedAtAll(address[] calldata agents) external view returns (uint64[] memory times) {
        times = new uint64[](agents.length);
        for (uint256 i = 0; i < agents.length; ++i) {
            times[i] = _commitments[agents[i]].time;
        }
    }

    /// @notice What an agent committed to.
    /// @param agent The account that committed.
    /// @return The commitment; 0 if it did not.
    function commitmentOf(address agent) external view returns (bytes32) {
        return _commitments[agent].hash;
    }

    /// @notice The tiers.
    /// @return From the highest down.
    function tiers() external view returns (Payouts.Tier[] memory) {
        return _tiers;
    }

    /// @notice The prize split.
    /// @return From the first place on.
    function split() external view returns (uint16[] memory) {
        return _split;
    }

    function _settlement(Score[] memory scores) private view returns (Settlement memory found) {
        Place[] memory places = _best(scores);
        uint16[] memory best = new uint16[](places.length);
        for (uint256 i = 0; i < places.length; ++i) {
            best[i] = places[i].bps;
        }
        Payouts.Result memory paid =
            Payouts.pay(Payouts.Rules(deposit, thresholdBps, feeBps, _tiers, _split), best);
        for (uint256 i = 0; i < places.length; ++i) {
            places[i].gross = paid.places[i].gross;
            places[i].fee = paid.places[i].fee;
        }
        return Settlement(paid.tierBps, paid.released, places, paid.fees, paid.refund);
    }

    /// @dev Those who hold a place: by score, then by the time of the commitment, then by address.
    function _best(Score[] memory scores) private view returns (Place[] memory places) {
        uint256 most = _split.length;
        uint256[] memory keys = new uint256[](most);
        uint256 filled = 0;
        for (uint256 i = 0; i < scores.length; ++i) {
            uint64 time = _commitments[scores[i].agent].time;
            if (time == 0) continue;
            uint256 key = _key(scores[i].bps, time, scores[i].agent);
            uint256 rank = filled;
            for (; rank > 0 && key > keys[rank - 1]; --rank) {
                if (rank < most) keys[rank] = keys[rank - 1];
            }
            if (rank < most) keys[rank] = key;
            if (filled < most) ++filled;
        }
        places = new Place[](filled);
        for (uint256 i = 0; i < filled; ++i) {
            places[i] = Place(address(~uint160(keys[i])), uint16(keys[i] >> 224), 0, 0);
        }
    }

    /// @dev One number for each agent, the higher the better: the score, then the time and the address counted backwards.
    function _key(uint16 bps, uint64 time, address agent) private pure returns (uint256) {
        return (uint256(bps) << 224) | (uint256(~time) << 160) | uint256(~uint160(agent));
    }

    function _difference(uint256 more, uint256 less) private pure returns (uint256) {
        return more > less ? more - less : 0;
    }

    function _check(Terms memory terms) private view {
        if (terms.bounty == 0) revert BadTerms("bounty");
        if (terms.sponsor == address(0)) revert BadTerms("sponsor");
        if (terms.deposit == 0) revert BadTerms("deposit");
        if (terms.scorer == address(0)) revert BadTerms("scorer");
        if (terms.feeBps > Payouts.BPS) revert BadTerms("feeBps");
        if (terms.feeBps > 0 && terms.feeRecipient == address(0)) revert BadTerms("feeRecipient");
        if (terms.thresholdBps == 0 || terms.thresholdBps > Payouts.BPS) revert BadTerms("thresholdBps");
        _checkTimes(terms.commitUntil, terms.scoreUntil);
        _checkTiers(terms.tiers);
        _checkSplit(terms.split);
        // An address with a slip in it must not get as far as the deposit.
        if (terms.token != address(0) && terms.token.code.length == 0) revert BadTerms("token");
    }

    function _checkTimes(uint64 commits, uint64 scores) private view {
        if (commits <= block.timestamp) revert BadTerms("commitUntil");
        if (scores <= commits || scores > block.timestamp + MAX_DURATION) revert BadTerms("scoreUntil");
    }

    function _checkTiers(Payouts.Tier[] memory found) private pure {
        if (found.length == 0 || found.length > MAX_TIERS) revert BadTerms("tiers");
        for (uint256 i = 0; i < found.length; ++i) {
            if (found[i].reachBps == 0 || found[i].reachBps > Payouts.BPS) revert BadTerms("tiers");
            if (found[i].releaseBps > Payouts.BPS) revert BadTerms("tiers");
            bool falls = i == 0 || (found[i].reachBps < found[i - 1].reachBps && found[i].releaseBps <= found[i - 1].releaseBps);
            if (!falls) revert BadTerms("tiers");
        }
    }

    function _checkSplit(uint16[] memory found) private pure {
        if (found.length == 0 || found.length > MAX_PLACES) revert BadTerms("split");
        uint256 sum = 0;
        for (uint256 i = 0; i < found.length; ++i) {
            if (found[i] == 0) revert BadTerms("split");
            sum += found[i];
        }
        if (sum != Payouts.BPS) revert BadTerms("split");
    }
}
