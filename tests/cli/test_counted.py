"""Numbers of things in what commands print: "1 picture", and long lists summed up."""

import re
from pathlib import Path

import limner.cli
from limner.counted import counted, some

THINGS = "pictures|sentences|cases|images|captions|queries|items|groups|files|lines|triplets|traces"
BARE = re.compile(rf"\}} ({THINGS})\b")


def test_one_is_one_in_every_word_that_commands_count() -> None:
    for things in THINGS.split("|"):
        assert counted(2, things) == f"2 {things}"
        assert counted(0, things) == f"0 {things}"
        one = things.removesuffix("ies") + "y" if things.endswith("ies") else things.removesuffix("s")
        assert counted(1, things) == f"1 {one}"
    assert counted(1, "pictures", of=3) == "1 of 3 pictures"


def test_no_command_writes_a_number_before_a_plural_by_hand() -> None:
    found = [
        f"{file.name}: {line.strip()}"
        for file in sorted(Path(limner.cli.__file__).parent.glob("*.py"))
        for line in file.read_text(encoding="utf-8").splitlines()
        if BARE.search(line)
        and "pictures/s" not in line
        and not re.search(r"\} (files|titles) (were|and)", line)
    ]
    assert found == []
    assert BARE.search('f"{number} pictures"')


def test_lists_are_summed_up() -> None:
    words = [str(number) for number in range(300)]
    assert some(words[:10]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert some(words) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 290 more"
