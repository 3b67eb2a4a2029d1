// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// @title A token as it should be. Anybody mints.
contract GoodToken is ERC20("Good", "GOOD") {
    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }
}

/// @title A token that misbehaves when it is told to.
contract BadToken is ERC20("Bad", "BAD") {
    enum Manner {
        Good,
        TakesFee,
        ReturnsFalse,
        Lies,
        Reverts,
        GivesMore,
        TakesMore,
        CallsBack
    }

    Manner public manner;
    address public target;
    bytes public call;
    bool public called;
    bytes public answer;

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function behave(Manner wanted) external {
        manner = wanted;
    }

    /// What is called, by the token, in the middle of each transfer.
    function callBack(address to, bytes calldata data) external {
        manner = Manner.CallsBack;
        (target, call) = (to, data);
    }

    function transfer(address to, uint256 amount) public override returns (bool) {
        return _move(msg.sender, to, amount);
    }

    function transferFrom(address from, address to, uint256 amount) public override returns (bool) {
        _spendAllowance(from, msg.sender, amount);
        return _move(from, to, amount);
    }

    function _move(address from, address to, uint256 amount) private returns (bool) {
        if (manner == Manner.ReturnsFalse) return false;
        if (manner == Manner.Lies) return true;
        require(manner != Manner.Reverts, "no");
        if (manner == Manner.CallsBack) {
            called = true;
            (bool fine, bytes memory said) = target.call(call);
            answer = said;
            require(!fine, "the call back went through");
        }
        if (manner == Manner.TakesFee) {
            uint256 fee = amount / 100 + 1;
            _burn(from, fee);
            amount -= fee;
        }
        if (manner == Manner.TakesMore) _burn(from, 1);
        _transfer(from, to, amount);
        if (manner == Manner.GivesMore) _mint(to, 1);
        return true;
    }
}
