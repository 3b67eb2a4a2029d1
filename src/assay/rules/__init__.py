"""Rules tried before money depends on them: the kernel asked "what if". It is pure: no file, no clock, no random number.

A seed is an argument. What decides money is exact; what is only shown may be float, and says so.
"""
