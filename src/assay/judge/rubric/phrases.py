"""What attacks on a judge say: phrases, found in the lower-case text by the words that they begin with.

A line below is the first words, a colon, and what follows on one of them: a space is whatever is between two words, ~4 up to four
words, a name in capitals one of `_NAMES`; the rest is as in regular expressions. Every repetition has a bound.
"""

from __future__ import annotations

import re

__all__ = ["addresses", "plays_a_role"]

_NAMES = {
    "JUDGE": "(?:judge|grader|evaluator|scorer|rater|assessor|llm|(?:large )?language model|ai(?: (?:model|system|reviewer))?"
    "|assistant|chatbot|gpt)s?",
    "TOLD": "(?:instructions?|prompts?|rules?|messages?|directions?|guidelines?|rubric|checks|criteria)",
    "EARLIER": "(?:previous|prior|above|earlier|preceding|foregoing|your|judge|system|hidden|sponsor)",
    "CHECKS": "(?:checks?|criteri[a-z]+|baselines?|items?)",
    "THIS": "(?:submission|solution|rubric|entry|work)",
    "TOP": "(?:full|maximum|max|top|highest|perfect|best)(?: possible)? (?:marks?|scores?|points?|verdict|grade|bps)",
    "SPEAKER": "(?:sponsor|operator|administrator|admin|judge|grader|system|assay)",
}
_LINES = """
ignore ignoring disregard forget override overrule follow following: ~4 EARLIER ~2 TOLD
ignore ignoring disregard forget override overrule: (?:(?:all|any|the|every) ){0,2}(?:instructions?|rubric)
ignore ignoring disregard forget: ~2 (?:everything|anything|all) ~3 (?:above|before|told|said)
new: (?:instructions?|rules|task|orders) (?:for|to) (?:you|the judge|the model|the ai)
ignore reveal repeat print output new updated end override: ~3 system (?:prompt|message|instructions?)
you: (?:are|re|will be|must act as|act as)(?: now| no longer)?(?: an?| the| my)? ~2 JUDGE
dear attention hey hello: (?:(?:the|all|any) )?JUDGE
note message instruction instructions: (?:to|for) (?:(?:the|all|any) )?JUDGE
if: you(?: are|'re) an? JUDGE
as: an? (?:ai|llm|language model|judge|grader|evaluator) you
from: now on (?:you|answer|the verdict)
pretend: (?:that )?you (?:are|re|have)
let lets: (?:s )?(?:play a game|role play|roleplay)
you: are now (?:an? )?(?:dan|unrestricted|jailbroken)
am is: (?:i )?the (?:sponsor|judge|operator|administrator|system)\\b(?! (?:s|of|is|in|at|on|for|under|where|that|which|who|we|to))
sponsor operator administrator admin judge grader system assay: (?:s )?(?:note|override|notice|directive|update)s?\\b\\s?[:\\]]
answer mark grade score rate evaluate count treat: ~4 (?:CHECKS|THIS) ~3 (?:yes|exceptional|elegant|met|passed|full marks)
answer respond reply say: ~3 yes (?:to|for|on) (?:all|every|each) ~1 CHECKS
all every each: ~2 CHECKS ~1 (?:are|is|must be|should be) ~1 (?:yes|met|true|satisfied)
verdict: (?:(?:is|must be|should be|to be|to|of) )?(?:exceptional|elegant)
give award assign grant: ~2 (?:me|us|it|answer|THIS) ~3 TOP
score rate grade mark: (?:this|my|our) THIS ~2 (?:10000|100|highest|perfect|exceptional)
your: (?:answer|judge?ment|verdict|evaluation|reply|response) (?:must|should|will|shall) (?:be|say|contain|include|read|state)
not don never: (?:t )?(?:mention|reveal|report|flag|quote) ~2 (?:instructions?|injection|messages?|text|note|comment)
end: of (?:the )?(?:untrusted|frame|participant|quoted material)
end: of (?:the )?(?:solution|submission) ~2 (?:now|new|system|assay|judge|next|instructions?|begin)
approved preapproved already: ~3 by ~2 (?:sponsor|judge|administrator|operator|assay|committee|organi[sz]ers?)
ignoriere ignorieren vergiss missachte: ~4 (?:anweisung|vorgabe|prompt|regeln?)[a-z]{0,3}
ignorez oubliez: ~4 (?:instructions|consignes)
ignora ignore olvida: ~4 (?:instrucciones|instruções|istruzioni)
игнорируй игнорируйте проигнорируй забудь забудьте: ~4 (?:инструкци|указани|правил)[а-я]{0,3}
"""
_UNSPACED = re.compile(
    "(?:忽略|无视|無視|忘记|忘記).{0,8}(?:指令|指示|提示|规则|規則)|(?:以前|これまで|上記).{0,6}(?:指示|命令).{0,6}(?:無視|忘れ)"
)
_WORDS = re.compile(r"\w+")


def _named(pattern: str) -> str:
    for name, meaning in _NAMES.items():
        pattern = pattern.replace(name, meaning)
    return pattern


def _following(pattern: str) -> re.Pattern[str]:
    """What is between words is bounded, and cannot be part of one: so no text makes the search slow."""
    between = r"\W{1,40}"
    spaced = re.sub(" ?~([0-9]) ", lambda found: f" (?:\\w{{1,40}} ){{0,{found[1]}}}?", pattern).lstrip()
    return re.compile(f"{between}{_named(spaced)}(?!\\w)".replace(" ", between))


def _by_first_word() -> dict[str, tuple[re.Pattern[str], ...]]:
    found: dict[str, list[re.Pattern[str]]] = {}
    for line in _LINES.strip().splitlines():
        first, _, rest = line.partition(": ")
        pattern = _following(rest)
        for word in first.split():
            found.setdefault(word, []).append(pattern)
    return {word: tuple(patterns) for word, patterns in found.items()}


_PHRASES = _by_first_word()
_ROLE = re.compile(
    "|".join(
        (
            _named(r"^[ \t#/*>;|(\[{!-]{0,12}(?:SPEAKER|assistant|developer|human)\b[ a-z]{0,20}[\])}>]? ?[:：][^\w\n]{0,4}")
            + "(?:you|your|ignore|disregard|the (?:judge|grader|solution|submission|participant|verdict)|please|from now"
            "|new instructions?|override|answer|verdict|all checks|i have|i find|understood|sure|set the)\\b",
            r"^[ \t]{0,8}#{1,6} ?system (?:prompt|message|override|instructions?)\b",
            "</?(?:system|assistant|untrusted[a-z_]{0,20}|judge[a-z_]{0,20}|submission|user_input|human)>",
            r"\[(?:system|assistant|judge) (?:message|prompt|note|says)[ a-z]{0,20}\]",
            r"\[end of (?:document|solution|submission|input)\]",
        )
    ),
    re.MULTILINE,
)


def addresses(low: str) -> bool:
    """Whether a lower-case text speaks to a judge, a model or a system, or says how to answer."""
    for word in _WORDS.finditer(low):
        for pattern in _PHRASES.get(word[0], ()):
            if pattern.match(low, word.end()):
                return True
    return not low.isascii() and _UNSPACED.search(low) is not None


def plays_a_role(low: str) -> bool:
    """Whether a lower-case text has lines that pretend to be those of a system, an assistant or a judge."""
    return _ROLE.search(low) is not None
