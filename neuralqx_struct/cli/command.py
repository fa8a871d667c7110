"""The record of a command, and its call: the values that are left out or are the standard input, and the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from neuralqx_struct.cli.arguments import COMMON, Argument, in_options, path_or_url
from neuralqx_struct.cli.inputs import fill_from_project, noticed, standard_input
from neuralqx_struct.cli.named import located
from neuralqx_struct.cli.printing import show
from neuralqx_struct.cli.report import Report
from neuralqx_struct.cli.terminal import Output
from neuralqx_struct.errors import StructError


class Command(NamedTuple):
    """All facts about one command.

    Attributes:
        name: Its words, such as ``schema lint``.
        function: The public function that does the same in Python.
        run: Called with the values of the arguments; returns the report.
        help: Help in one sentence.
        arguments: Its arguments and options, besides those of every command.
        examples: Calls that its help shows, without the name of the program.
        members: The members of its JSON results, besides those of every report.
        needs_jax: True if it always imports JAX.
    """

    name: str
    function: str
    run: Callable[..., Report]
    help: str
    arguments: tuple[Argument, ...]
    examples: tuple[str, ...]
    members: tuple[str, ...]
    needs_jax: bool = False

    @property
    def group(self) -> str:
        """The group that it belongs to; empty for a command of the program itself."""
        return self.name.rpartition(" ")[0]

    @property
    def word(self) -> str:
        """Its name inside its group."""
        return self.name.rpartition(" ")[2]

    @property
    def summary(self) -> str:
        """The first sentence of its help."""
        return self.help.partition(". ")[0].removesuffix(".") + "."

    @property
    def all_arguments(self) -> tuple[Argument, ...]:
        """The arguments of the command and of every command."""
        return (*self.arguments, *COMMON)

    def call(self, values: dict[str, Any], line: str) -> int:
        """Runs the command and prints its report; returns the exit code.

        Args:
            values: The value of each argument.
            line: The command line, for the report of an error that nothing expects.
        """
        output = Output(**{argument.name: values.pop(argument.name) for argument in COMMON})
        reading = [each for each in self.arguments if each.reads]
        with standard_input(reading, values) as renamed:
            return show(
                self.name,
                output,
                lambda: self._report(values),
                line=line,
                renamed=renamed,
                written=lambda keyword: in_options(keyword, self.arguments),
            )

    def _report(self, values: dict[str, Any]) -> Report:
        """The report of the command; values that are left out come from the project file."""
        for argument in self.arguments:
            if argument.parse is path_or_url:
                values[argument.name] = located(values[argument.name])
        if not any(a.project or a.schema or a.imports for a in self.arguments):
            return self.run(**values)
        from neuralqx_struct.tools.project import find_project

        try:
            project = find_project()
        except StructError as error:
            return Report(failures=error.diagnostics)
        granted = fill_from_project(self.arguments, values, project)
        with noticed(granted, project.file):
            report = self.run(**values)
        # The findings about a project file are about its trust.
        found = project.found if any(a.imports for a in self.arguments) else ()
        return report._replace(diagnostics=(*found, *report.diagnostics))
