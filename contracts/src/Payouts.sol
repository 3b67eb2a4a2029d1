// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

/// @title From scores to amounts, to the last unit: a deposit becomes places, fees and a refund.
/// @notice Every division floors, and what is lost to it is refunded: nets + fees + refund = deposit, always.
/// @dev Pure, so that it can be tried by itself. `Math.mulDiv` does not overflow, whatever the deposit.
library Payouts {
    /// @notice The whole, in ten-thousandths.
    uint256 internal constant BPS = 10_000;

    /// @notice From this share of the threshold on, that share of the deposit is released.
    struct Tier {
        uint16 reachBps;
        uint16 releaseBps;
    }

    /// @notice How a deposit is paid out. Tiers fall; the split of what is released sums to BPS.
    struct Rules {
        uint256 deposit;
        uint16 thresholdBps;
        uint16 feeBps;
        Tier[] tiers;
        uint16[] split;
    }

    /// @notice One place: gross, and the fee taken from it. What the agent gets is the difference.
    struct Amount {
        uint256 gross;
        uint256 fee;
    }

    /// @notice What a deposit became.
    struct Result {
        uint16 tierBps;
        uint256 released;
        Amount[] places;
        uint256 fees;
        uint256 refund;
    }

    /// @notice The payouts of the best scores.
    /// @param rules How the deposit is paid out.
    /// @param best Scores in BPS, the best first; those beyond the split are not looked at.
    /// @return found A row for every place of the split that somebody holds.
    function pay(Rules memory rules, uint16[] memory best) internal pure returns (Result memory found) {
        if (best.length > 0) {
            for (uint256 i = 0; i < rules.tiers.length; ++i) {
                if (_reaches(best[0], rules.tiers[i].reachBps, rules.thresholdBps)) {
                    found.tierBps = rules.tiers[i].releaseBps;
                    break;
                }
            }
        }
        found.released = Math.mulDiv(rules.deposit, found.tierBps, BPS);
        found.refund = rules.deposit;
        uint16 lowest = rules.tiers[rules.tiers.length - 1].reachBps;
        found.places = new Amount[](Math.min(best.length, rules.split.length));
        for (uint256 i = 0; i < found.places.length; ++i) {
            if (!_reaches(best[i], lowest, rules.thresholdBps)) continue;
            Amount memory one = found.places[i];
            one.gross = Math.mulDiv(found.released, rules.split[i], BPS);
            one.fee = Math.mulDiv(one.gross, rules.feeBps, BPS);
            found.fees += one.fee;
            found.refund -= one.gross;
        }
    }

    /// @dev bps / threshold ≥ reach / BPS, multiplied out.
    function _reaches(uint256 bps, uint256 reachBps, uint256 thresholdBps) private pure returns (bool) {
        return bps * BPS >= reachBps * thresholdBps;
    }
}
