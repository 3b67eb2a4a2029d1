"""Publishing each new receipt when the chain allows, for as long as a program runs, and saying when something is wrong."""
