"""Cases of numbers, times, canonical JSON, apportionment, task sets. SPEC 1, 6."""

from __future__ import annotations

from typing import Any

from .case import CaseDraft, File, case, refused

U63 = str(2**63 - 1)
WEI = str(2**256 - 1)


def number(name: str, read_as: str, value: Any, text: str, count: int | str) -> CaseDraft:
    return case(name, {"as": read_as, "value": value}, {"text": text, "count": str(count)})


def no_number(name: str, read_as: str, value: Any, why: str) -> CaseDraft:
    return refused(name, {"as": read_as, "value": value}, why)


DECIMAL = [
    number("eight tenths", "score", "0.8", "0.8", 800_000_000),
    number("1.0 is 1", "score", "1.0", "1", 10**9),
    number("0.50 is 0.5", "score", "0.50", "0.5", 500_000_000),
    number("zero", "score", "0", "0", 0),
    number("0.000 is 0", "score", "0.000", "0", 0),
    number("the smallest", "score", "0.000000001", "0.000000001", 1),
    number("the largest below 1", "score", "0.999999999", "0.999999999", 999_999_999),
    number("leading zeros say nothing", "score", "00.25", "0.25", 250_000_000),
    number("nine digits", "score", "0.802197802", "0.802197802", 802_197_802),
    number("an amount above 1", "amount", "12.5", "12.5", 12_500_000_000),
    number("the largest amount", "amount", "999999999.999999999", "999999999.999999999", 10**18 - 1),
    number("a threshold", "fraction", "3.5", "3.5", 3_500_000_000),
    number("30 % is 0.3", "share", "30%", "0.3", 300_000_000),
    number("half a per cent", "share", "0.5%", "0.005", 5_000_000),
    number("seven digits before the %", "share", "33.3333333%", "0.333333333", 333_333_333),
    number("100 % is 1", "share", "100%", "1", 10**9),
    number("150 % is a fraction", "fraction", "150%", "1.5", 1_500_000_000),
    number("stake", "stake", "100", "100", 100),
    number("no stake", "stake", "0", "0", 0),
    number("the largest stake is 2^63 − 1", "stake", U63, U63, U63),
    number("leading zeros of a stake", "stake", "007", "7", 7),
    number("the largest amount of wei is 2^256 − 1", "wei", WEI, WEI, WEI),
    no_number("a score above 1", "score", "1.000000001", "a score is from 0 to 1"),
    no_number("a negative score", "score", "-0.1", "no sign"),
    no_number("a plus sign", "score", "+0.5", "no sign"),
    no_number("an exponent", "score", "5e-1", "no exponent"),
    no_number("no digit before the point", "score", ".5", "digits before the point"),
    no_number("no digit after the point", "score", "5.", "digits after the point"),
    no_number("a comma", "score", "0,5", "a point, not a comma"),
    no_number("an empty text", "score", "", "digits"),
    no_number("a space", "score", " 0.5", "nothing but digits and a point"),
    no_number("a line end", "score", "0.5\n", "nothing but digits and a point"),
    no_number("finer than nanos", "score", "0.0000000001", "at most nine fractional digits"),
    no_number("NaN as text", "score", "NaN", "not a number"),
    no_number("Infinity as text", "amount", "Infinity", "not a number"),
    no_number("digits of another script", "score", "٠.٥", "ASCII digits only"),
    no_number("an underscore", "stake", "1_000", "nothing but digits"),
    no_number("a JSON float", "score", 0.5, "fractions are decimal strings"),
    no_number("a JSON integer", "score", 1, "fractions are decimal strings"),
    no_number("a boolean", "score", True, "fractions are decimal strings"),
    no_number("null", "score", None, "fractions are decimal strings"),
    no_number("a percentage as a score", "score", "50%", "percentages are for schemes"),
    no_number("a share above 1", "share", "100.0000001%", "a share is from 0 to 1"),
    no_number("a percentage finer than nanos", "share", "33.33333333%", "at most seven fractional digits before the %"),
    no_number("a % alone", "share", "%", "digits before the %"),
    no_number("an amount of 10^9", "amount", "1000000000", "amounts are below 10^9, so that nanos fit 64 bits"),
    no_number("a stake of 2^63", "stake", str(2**63), "stake is at most 2^63 − 1"),
    no_number("a stake with a point", "stake", "1.0", "stake is an integer"),
    no_number("a negative stake", "stake", "-1", "stake is at least 0"),
    no_number("a stake that is a JSON integer", "stake", 100, "stake is a string of digits"),
    no_number("2^256 wei", "wei", str(2**256), "wei is at most 2^256 − 1"),
]


def time(name: str, text: Any, utc: str) -> CaseDraft:
    return case(name, {"text": text}, {"utc": utc})


INSTANT = [
    time("UTC", "2026-11-02T09:00:00Z", "2026-11-02T09:00:00Z"),
    time("an offset is taken off", "2026-11-02T11:30:00+02:30", "2026-11-02T09:00:00Z"),
    time("a negative offset over midnight", "2026-12-31T23:30:00-01:00", "2027-01-01T00:30:00Z"),
    time("a small t and z", "2026-11-02t09:00:00z", "2026-11-02T09:00:00Z"),
    time("a space instead of T", "2026-11-02 09:00:00Z", "2026-11-02T09:00:00Z"),
    time("a fraction of a second", "2026-11-02T09:00:00.5Z", "2026-11-02T09:00:00.500000Z"),
    time("a fraction of zero", "2026-11-02T09:00:00.000Z", "2026-11-02T09:00:00Z"),
    time("microseconds", "2026-11-02T09:00:00.123456Z", "2026-11-02T09:00:00.123456Z"),
    time("a leap day", "2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
    refused("no time zone", {"text": "2026-11-02T09:00:00"}, "an instant has a time zone"),
    refused("a day alone", {"text": "2026-11-02"}, "an instant has a time"),
    refused("a day that is not", {"text": "2026-02-29T00:00:00Z"}, "2026 has no such day"),
    refused("hour 25", {"text": "2026-11-02T25:00:00Z"}, "no such hour"),
    refused("second 60", {"text": "2016-12-31T23:59:60Z"}, "instants have no leap seconds"),
    refused("hour 24", {"text": "2026-11-02T24:00:00Z"}, "no such hour"),
    refused("a week date", {"text": "2026-W45-1T09:00:00Z"}, "a date is year, month and day"),
    refused("without separators", {"text": "20261102T090000Z"}, "RFC 3339 has separators"),
    refused("a comma before the fraction", {"text": "2026-11-02T09:00:00,5Z"}, "a fraction begins with a point"),
    refused("an offset with seconds", {"text": "2026-11-02T09:00:00+01:00:30"}, "an offset is hours and minutes"),
    refused("digits of another script", {"text": "٢٠٢٦-11-02T09:00:00Z"}, "digits are those of ASCII"),
    refused("before the year 1", {"text": "0001-01-01T00:00:00+00:01"}, "years are 1 to 9999"),
    case("a fraction has six digits or none", {"text": "2026-11-02T09:00:00.5Z"}, {"utc": "2026-11-02T09:00:00.500000Z"}),
    refused("finer than microseconds", {"text": "2026-11-02T09:00:00.1234567Z"}, "instants are kept to the microsecond"),
    refused("a Unix time", {"text": 1_793_610_000}, "an instant is RFC 3339 text"),
]


def canon(name: str, text: str, canonical: str) -> CaseDraft:
    return case(name, {"json": text}, {"text": canonical})


def no_json(name: str, text: str, why: str) -> CaseDraft:
    return refused(name, {"json": text}, why)


CANONICAL = [
    canon("keys are sorted", '{"b": 1, "a": 2}', '{"a":2,"b":1}'),
    canon("space is dropped", " [ 1 ,\n 2 ] ", "[1,2]"),
    canon("lists keep their order", "[3,1,2]", "[3,1,2]"),
    canon("keys sort inside objects inside lists", '[{"z":{"y":1,"x":2},"a":null}]', '[{"a":null,"z":{"x":2,"y":1}}]'),
    canon(
        "keys sort by UTF-16 code units",
        '{"\\u20ac":1,"\\r":2,"\\ufb33":3,"1":4,"\\ud83d\\ude00":5,"\\u0080":6,"\\u00f6":7}',
        '{"\\r":2,"1":4,"\x80":6,"ö":7,"€":1,"😀":5,"\ufb33":3}',
    ),
    canon("the empty key", '{"a":1,"":2}', '{"":2,"a":1}'),
    canon("an emoji escaped is an emoji", '"\\ud83d\\ude00"', '"😀"'),
    canon("letters escaped are letters", '"\\u0041\\/"', '"A/"'),
    canon("control characters", '"\\u0008\\t\\n\\u000c\\r\\u000b\\u001f"', '"\\b\\t\\n\\f\\r\\u000b\\u001f"'),
    canon("quotes and backslashes", '"\\"\\\\"', '"\\"\\\\"'),
    canon("no normalisation of text", '"e\\u0301"', '"e\u0301"'),
    canon("true, false, null", "[true,false,null]", "[true,false,null]"),
    canon("integers", "[0,-0,10,-7]", "[0,0,10,-7]"),
    canon("the largest integers", "[9007199254740991,-9007199254740991]", "[9007199254740991,-9007199254740991]"),
    canon(
        "floats as ECMAScript writes them",
        "[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001,-0.0,1.0]",
        "[333333333.3333333,1e+30,4.5,0.002,1e-27,0,1]",
    ),
    canon("empty things", '[{},[],""]', '[{},[],""]'),
    canon("a settlement's fraction is text", '{"score":"0.802197802"}', '{"score":"0.802197802"}'),
    no_json("one key twice", '{"a":1,"a":1}', "two readers could take different ones"),
    no_json("one key twice, once escaped", '{"a":1,"\\u0061":2}', "two readers could take different ones"),
    no_json("2^53", "9007199254740992", "integers stay within ±(2^53 − 1)"),
    no_json("−2^53", "-9007199254740992", "integers stay within ±(2^53 − 1)"),
    no_json("NaN", "[NaN]", "not JSON"),
    no_json("Infinity", "[-Infinity]", "not JSON"),
    no_json("a number too large for a float", "1e400", "not a number to any reader"),
    no_json("a lone surrogate", '"\\ud83d"', "not text"),
    no_json("a lone surrogate in a key", '{"\\ude00":1}', "not text"),
    no_json("a comma too many", "[1,]", "not JSON"),
    no_json("a comment", "[1] // one", "not JSON"),
    no_json("two values", "1 2", "not JSON"),
    no_json("cut off", '{"a":', "not JSON"),
    no_json("nothing", "", "not JSON"),
    no_json("nested 33 deep", "[" * 33 + "]" * 33, "at most 32 deep"),
]


def out(name: str, amount: str, parts: list[str], amounts: list[int]) -> CaseDraft:
    return case(name, {"amount": amount, "parts": parts}, {"amounts": [str(each) for each in amounts]})


APPORTION = [
    out("nothing is left over", "100", ["1/2", "1/4", "1/4"], [50, 25, 25]),
    out("the largest remainder gets the one left over", "10", ["1/3", "2/3"], [3, 7]),
    out("ties go to the earlier", "10", ["1/3", "1/3", "1/3"], [4, 3, 3]),
    out("two left over, three tied", "11", ["1/3", "1/3", "1/3"], [4, 4, 3]),
    out("65535 in halves", "65535", ["1/2", "1/2"], [32768, 32767]),
    out("less than there are parts", "1", ["1/4", "1/4", "1/4", "1/4"], [1, 0, 0, 0]),
    out("nothing to give", "0", ["1/2", "1/2"], [0, 0]),
    out("a part of nothing", "7", ["0/1", "1/1"], [0, 7]),
    out("rao beyond 2^53", "9223372036854775807", ["3/4", "1/4"], [6917529027641081855, 2305843009213693952]),
    refused("parts that leave a rest", {"amount": "10", "parts": ["1/2", "1/3"]}, "parts sum to 1"),
    refused("parts above 1", {"amount": "10", "parts": ["1/2", "2/3"]}, "parts sum to 1"),
]

PIN = "sha256:" + "ab" * 32

TASK_SET = [
    case("ids keep their order", {"lines": ["b", "a", "c"]}, {"ids": ["b", "a", "c"]}),
    case("the digest does not depend on the order", {"lines": ["c", "a", "b"]}, {"ids": ["c", "a", "b"]}),
    case("blank lines and comments say nothing", {"lines": ["# the set", "", "a", "  ", "b", "c"]}, {"ids": ["a", "b", "c"]}),
    case("keys sort by UTF-8 bytes, not by UTF-16", {"lines": ["z😀", "z～", "tâche"]}, {"ids": ["z😀", "z～", "tâche"]}),
    case("a manifest pins the files of a task", {"lines": [f"a {PIN}", "b"]}, {"ids": ["a", "b"]}),
    case("a manifest says how the work is seen", {"lines": [f"a {PIN} snapshot", "b shared"]}, {"ids": ["a", "b"]}),
    case("words of a line are joined by one space", {"lines": [f"  a\t{PIN}   snapshot ", "b shared"]}, {"ids": ["a", "b"]}),
    case("a hash inside an id is no comment", {"lines": ["a#x"]}, {"ids": ["a#x"]}),
    case("an id may hold a no-break space", {"lines": ["a\xa0b shared"]}, {"ids": ["a\xa0b"]}),
    refused("a zero-width space in an id", {"lines": ["a\u200bb"]}, "ids are text of SPEC 1"),
    refused("no task", {"lines": ["# nothing yet"]}, "a task set has a task"),
    refused("a task twice", {"lines": ["a", "b", "a"]}, "each task once"),
    refused("a word out of place", {"lines": ["a quickly"]}, "a digest or a mode follows the id"),
    refused("a digest too short", {"lines": ["a sha256:abcd"]}, "a digest has 64 hex digits"),
    refused("the mode before the digest", {"lines": [f"a shared {PIN}"]}, "the digest comes first"),
]

FILES = [
    File("decimal", "decimal", "Numbers as decimal strings, read and normalised (SPEC 1).", DECIMAL),
    File("instant", "instant", "Times as instants (SPEC 1, 7).", INSTANT),
    File("canonical", "canonical", "Strict JSON, its canonical form and digest (SPEC 6).", CANONICAL),
    File("apportion", "apportion", "An amount given out whole by largest remainder (SPEC 1).", APPORTION),
    File("task-set", "task-set", "Lines of tasks.txt, and the digest of the set (SPEC 2.1, 6).", TASK_SET),
]
