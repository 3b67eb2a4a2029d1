"""Untrusted text as a model is shown it: whatever would not be seen, or could be taken for ours, is a visible escape. SPEC 2.3.

- `⟦U+202E⟧` stands for one character: a control, a bidirectional or zero-width one, a tag, an unusual space, a private one.
- So do the brackets of our own markers, ⟪ and ⟫, and those of the escape, ⟦ and ⟧: no text can write a marker or an escape, and
  two texts are never shown alike.
- So does the first character of what looks like a marker, and of the tokens by which chat templates tell speakers apart.
- Line ends are \\n. A carriage return that ends no line is escaped.

The characters are listed here, not looked up in Unicode's tables: those differ between versions of Python, a request must not.
"""

from __future__ import annotations

import re

__all__ = ["CHAT_TOKENS", "MARKERS", "normal", "shown"]

_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\xa0\xad"
    "\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164"
    "\ue000-\uf8ff\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff"
)
_OURS = "⟪⟫⟦⟧"
MARKERS = r"[<＜《«≪⟨‹⦅⧼]{1,2}[ \t/]{0,8}(?:begin|end)?[ \t]{0,8}assay"
"""What looks like the beginning of a marker of ours."""
CHAT_TOKENS = (
    r"[<＜][|｜][A-Za-z0-9_▁.:/-]{1,60}[|｜][>＞]"
    r"|[\[［]/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|gMASK)[\]］]"
    r"|[<＜]{2}/?SYS[>＞]{2}"
    r"|[<＜]/?(?:start_of_turn|end_of_turn|bos|eos|unk|pad|s|sop|eop|think|tool_call|tool_response)[>＞]"
)
"""What servers may take for the tokens of a chat template."""
_ESCAPED = re.compile(f"[{_HIDDEN}{_OURS}]|(?={MARKERS}|{CHAT_TOKENS}).", re.ASCII | re.IGNORECASE | re.DOTALL)


def normal(text: str) -> str:
    """The text with \\n at the end of each line that ends in \\r\\n."""
    return text.replace("\r\n", "\n")


def shown(text: str) -> str:
    """The text as a model is shown it; no two texts that differ in more than line ends are shown alike."""
    return _ESCAPED.sub(lambda found: f"⟦U+{ord(found[0]):04X}⟧", normal(text))
