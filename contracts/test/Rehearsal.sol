// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {BountyRound} from "../src/BountyRound.sol";
import {Score} from "../src/IScores.sol";
import {Payouts} from "../src/Payouts.sol";

/// @title The arithmetic alone, many cases in one call.
contract Sums {
    function pay(Payouts.Rules[] calldata rules, uint16[][] calldata best) external pure returns (Payouts.Result[] memory found) {
        found = new Payouts.Result[](rules.length);
        for (uint256 i = 0; i < rules.length; ++i) {
            found[i] = Payouts.pay(rules[i], best[i]);
        }
    }
}

/// @title Someone who commits.
contract Hand {
    function commit(BountyRound round, bytes32 commitment) external {
        round.commit(commitment);
    }
}

/// @title Whole rounds, many in one call: made, funded, committed to, and shown what they would pay for some scores.
contract Rehearsal {
    Hand[] public hands;

    struct Case {
        BountyRound.Terms terms;
        uint16[] scores;
    }

    function grow(uint256 count) external {
        while (hands.length < count) hands.push(new Hand());
    }

    /// The scores are of the hands, in their order.
    function rehearse(Case[] calldata cases) external returns (BountyRound.Settlement[] memory found) {
        found = new BountyRound.Settlement[](cases.length);
        for (uint256 i = 0; i < cases.length; ++i) {
            BountyRound round = new BountyRound(cases[i].terms);
            round.fund{value: cases[i].terms.deposit}();
            Score[] memory scores = new Score[](cases[i].scores.length);
            for (uint256 j = 0; j < scores.length; ++j) {
                hands[j].commit(round, bytes32(uint256(1)));
                scores[j] = Score(address(hands[j]), cases[i].scores[j], 0);
            }
            found[i] = round.preview(scores);
        }
    }

    receive() external payable {}
}
