// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title A validation registry with the interface of ERC-8004, and of its rules only those that a response has to meet.
contract Validations {
    struct Validation {
        address validator;
        uint256 agentId;
        uint8 response;
        bytes32 responseHash;
        string tag;
    }

    mapping(bytes32 => Validation) public validations;

    event ValidationRequest(address indexed validatorAddress, uint256 indexed agentId, string requestURI, bytes32 indexed requestHash);
    event ValidationResponse(
        address indexed validatorAddress,
        uint256 indexed agentId,
        bytes32 indexed requestHash,
        uint8 response,
        string responseURI,
        bytes32 responseHash,
        string tag
    );

    function validationRequest(address validator, uint256 agentId, string calldata requestURI, bytes32 requestHash) external {
        require(validations[requestHash].validator == address(0), "exists");
        validations[requestHash].validator = validator;
        validations[requestHash].agentId = agentId;
        emit ValidationRequest(validator, agentId, requestURI, requestHash);
    }

    function validationResponse(
        bytes32 requestHash,
        uint8 response,
        string calldata responseURI,
        bytes32 responseHash,
        string calldata tag
    ) external {
        Validation storage there = validations[requestHash];
        require(there.validator == msg.sender, "not validator");
        require(response <= 100, "resp>100");
        (there.response, there.responseHash, there.tag) = (response, responseHash, tag);
        emit ValidationResponse(msg.sender, there.agentId, requestHash, response, responseURI, responseHash, tag);
    }
}
