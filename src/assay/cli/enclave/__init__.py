"""Commands of the judging enclave."""
