"""The page `docs/api.md`: every public Python name with its signature and the first paragraph of its docstring."""

from docs.public_api import Public, public_names


def api_page(note: str) -> str:
    """The page."""
    parts = [
        note,
        "# Python names",
        "What is public in Python, with its types (`limner` ships `py.typed`). [stability.md](stability.md) says what "
        "that promises. A name that does not stand here may change in any version. Constructors of settings and "
        "reports take their fields by name.",
    ]
    for section, names in public_names():
        heading = section.title if section.title == section.module else f"{section.title} ({section.module})"
        parts += [f"## {heading}", section.about]
        parts += [_entry(section.module, one) for one in names]
    return "\n\n".join(parts) + "\n"


def _entry(module: str, one: Public) -> str:
    lines = [f"### `{module}.{one.name}`", "", "```text", _wrapped(one.signature), "```", "", one.about]
    if one.members:
        lines += ["", "| Member | Type | What it is |", "|---|---|---|"]
        lines += [f"| `{name}` | `{_cell(text)}` | {_cell(about)} |" for name, text, about in one.members]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _wrapped(signature: str) -> str:
    """A signature of more than one line's length with an argument a line."""
    if len(signature) <= 100 or "(" not in signature:
        return signature
    depth, parts = 0, [""]
    for sign in signature:
        depth += (sign in "([") - (sign in ")]")
        if (sign == "(" and depth == 1) or (sign == "," and depth == 1):
            parts[-1] += sign
            parts.append("")
        elif sign == ")" and depth == 0:
            parts.append(sign)
        else:
            parts[-1] += sign
    return "\n".join(
        [parts[0], *(f"    {part.strip()}" for part in parts[1:-1]), parts[-1]] if len(parts) > 2 else parts
    )
