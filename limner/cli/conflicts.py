"""Options of a command that do not go together, as tables, and the one function that reads them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from limner.errors import SettingsError


@dataclass(frozen=True)
class Conflict:
    """A rule about what stands beside an option: none of `without`, one of `needs`, nothing but `only`.

    Each of these has blanks between its names. Options are written as they are typed, `--format=csv` for a value of
    one, and arguments by their name in capitals. A rule of no option is about every call. `why` says what is wrong
    where the names alone do not.
    """

    option: str = ""
    why: str = ""
    without: str = ""
    needs: str = ""
    only: str = ""

    def refusal(self, given: dict[str, str], required: set[str]) -> str | None:
        """The message for a command line, by what is typed and by the options' names; None if all is well."""
        if self.option and self.option not in given:
            return None
        if self.only:
            fine = {self.option, *self.only.split(), "--json", "--quiet", "--verbose", *required}
            others = [name for name in given.values() if name not in fine]
            why = f"goes with {_listed(self.only, 'and')} only"
        else:
            others = [given[name] for name in self.without.split() if name in given]
            why = self.why or f"does not go with {''.join(others[:1])}"
        if others:
            return f"{self.option}: {why}; leave out {others[0]}"
        if not self.needs or given.keys() & {*self.needs.split()}:
            return None
        needs = _listed(self.needs, "or")
        return (
            f"{self.option}: {self.why or 'is of no use alone'}; give {needs}"
            if self.option
            else f"give {needs}"
        )


def refuse(conflicts: Sequence[Conflict], context: Any) -> None:
    """Raise `SettingsError` for the first rule that a command line breaks; `context` is typer's."""
    given = dict(_given(context))
    required = {_name(param) for param in context.command.params if param.required}
    for one in conflicts:
        if (said := one.refusal(given, required)) is not None:
            raise SettingsError(said)


def refuse_twice(order: Sequence[Any]) -> None:
    """Raise `SettingsError` for an option with one value that is typed twice; given is each as it was typed."""
    for param in order:
        # a switch says the same again, unless it has an opposite
        single = not getattr(param, "is_flag", False) or param.secondary_opts
        once = param.param_type_name == "option" and not param.multiple and single
        if once and order.count(param) > 1:
            raise SettingsError(f"{_name(param)}: is given twice, and one alone counts; leave out the other")


def is_typed(context: Any, parameter: str) -> bool:
    """True for a parameter of a command that stands on the command line."""
    source = context.get_parameter_source(parameter)
    # by its name: newer versions of typer have a click of their own
    return source is not None and str(source.name) == "COMMANDLINE"


def _given(context: Any) -> Iterator[tuple[str, str]]:
    """Each way to write what is typed, with the option's own name."""
    for param in context.command.params:
        # an argument that takes many is typed with none
        if is_typed(context, param.name) and (value := context.params[param.name]) not in (None, (), []):
            for spelt in (_name(param), *param.opts):
                yield spelt, _name(param)
                yield f"{spelt}={value}", _name(param)


def _name(param: Any) -> str:
    return str(param.metavar if param.param_type_name == "argument" else param.opts[0])


def _listed(names: str, word: str) -> str:
    *most, last = names.split()
    return f"{', '.join(most)} {word} {last}" if most else last
