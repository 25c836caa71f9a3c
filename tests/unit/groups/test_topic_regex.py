"""Topics by RE2's regular expressions, as Java and Go clients write them."""

import subprocess
import sys

import pytest

from diskless_core.groups.consumer import topic_regex

NAMES = ("a.b", "a.bc", "axb", "abc", "ABC", "é1")


@pytest.mark.parametrize(
    ("regex", "matches"),
    [
        (r"\Qa.b\E", {"a.b"}),  # Pattern.quote of Java
        (r"\Qa.b\E.*", {"a.b", "a.bc"}),
        (r"a\Cb", {"a.b", "axb"}),
        ("(?i)abc", {"abc", "ABC"}),
        ("[[:upper:]]+", {"ABC"}),
        (r"\pL\d", {"é1"}),
        ("(?P<first>a).b", {"a.b", "axb"}),
        ("b", set()),
        ("abc|é1", {"abc", "é1"}),
    ],
)
def test_a_name_is_matched_from_end_to_end(regex: str, matches: set[str]) -> None:
    assert topic_regex.matching(regex, NAMES) == matches


@pytest.mark.parametrize("regex", ["a{1001}", "a)(b", "(", "(?=a)", r"(a)\1", "a++", "(?:a{1000}){1000}"])
def test_what_re2_does_not_know_is_refused_with_the_reason(regex: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(topic_regex.InvalidRegexError, match=r"is no valid regular expression: \w+ "):
        topic_regex.check(regex)
    assert capfd.readouterr().err == ""


def test_nothing_is_imported_before_the_first_expression() -> None:
    code = "import sys, diskless_core.groups.consumer.topic_regex; sys.exit('re2' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
