"""Rules tried before money depends on them: the kernel asked "what if". It is pure: no file, no clock, no random number.

A seed is an argument. Numbers that decide money are exact; numbers that are only shown may be float, and say so.
"""
