"""The judging enclave: what it asks of dstack, what it attests, and how anybody checks that."""
