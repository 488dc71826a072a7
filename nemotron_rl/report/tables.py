"""What the checkpoint commands found or made, as tables."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nemotron_rl.checkpoint.cover import Candidate, Choice
from nemotron_rl.checkpoint.geometries import Certainty
from nemotron_rl.checkpoint.inspect import Inspection
from nemotron_rl.checkpoint.ranged.plan import FetchPlan
from nemotron_rl.checkpoint.tally import Count, Tally
from nemotron_rl.checkpoint.verify import Comparison
from nemotron_rl.report import format as fmt
from nemotron_rl.report.summary import light_table

SHOWN = 20
"""Rows of a table of differences or problems; a checkpoint can have 50,000 tensors."""
_LONGEST_CELL = 2_000
"""Characters; of Ultra's facts none has 500."""
_KINDS = {"M": "Mamba2", "E": "mixture of experts", "*": "attention", "-": "dense MLP", "mtp": "multi-token prediction"}


def inspection_view(inspection: Inspection) -> RenderableType:
    """Pattern, counts per block type, types, how certain the geometry is, and what is wrong."""
    dtypes = ", ".join(f"{count:,} {dtype}" for dtype, count in inspection.dtypes.items())
    mtp = f"{inspection.mtp_pattern} (depth {inspection.mtp_depth})" if inspection.mtp_pattern else "none"
    facts = light_table("", "", "")
    facts.title = _plain(inspection.name)
    facts.show_header = False
    facts.columns[1].overflow = "fold"
    rows = {
        "architecture": inspection.architecture,
        "pattern": f"{inspection.pattern}  ({len(inspection.pattern)} layers)",
        "MTP head": mtp,
        "tensors": f"{dtypes} in {fmt.plural(inspection.files, 'file')}",
    }
    if inspection.geometry is not None:
        rows["sizes of"] = certainty_line(inspection.geometry)
    if inspection.scan is not None:
        rows["scanned"] = (
            f"{fmt.plural(inspection.scan.tensors, 'tensor')} of float types, {fmt.size(inspection.scan.nbytes)}: "
            f"{len(inspection.scan.not_finite) or 'none'} with NaN or infinity"
        )
    for what, value in rows.items():
        facts.add_row(what, _plain(value))
    return Group(facts, Text(""), tally_table(inspection.tally), Text(""), _problems(inspection.problems))


def certainty_line(known: Certainty) -> str:
    """A preset, and which of its values are not known of the published model."""
    if not known.uncertain:
        return f"{known.preset} ({known.model}; {known.marks['*']})"
    sure = len(known.marks) - len(known.uncertain)
    return (
        f"{known.preset} ({known.model}); {sure} values are known, {len(known.uncertain)} inferred or "
        f"unknown: {', '.join(known.uncertain)}. inspect synth://{known.preset} --json says why"
    )


def tally_table(tally: Tally) -> Table:
    """Layers, tensors, parameters and bytes per block type, and in all: exact, because they are compared."""
    table = light_table("", "block", "", ">layers", ">tensors", ">parameters", ">bytes", ">")
    for block, count in tally.by_block.items():
        layers = str(tally.layers[block]) if block in tally.layers else ""
        table.add_row(block, Text(_KINDS.get(block, ""), "dim"), layers, *_exact(count))
    for column in table.columns[2:]:
        column.no_wrap = True  # in a narrow terminal the words give way, not the numbers
    table.add_row("total", "", str(sum(tally.layers.values())), *_exact(tally.total), style="bold")
    return table


def _exact(count: Count) -> tuple[str, str, str, str]:
    return f"{count.tensors:,}", f"{count.params:,}", f"{count.nbytes:,}", fmt.size(count.nbytes)


def choice_view(choice: Choice, rest: int) -> RenderableType:
    """Which layers were chosen, why, and what else there is; `rest` is the bytes of a slice outside its layers."""
    chosen = choice.chosen
    why = Text(
        f"Layers {_numbers(chosen)} ({chosen.pattern}) are the cheapest that have {', '.join(choice.needs)}: every "
        "block type, and each mixer (M, *) with each feed-forward (E, -) that follows it in the source."
    )
    table = light_table("", "", "layers", "pattern", ">bytes of the slice", "")
    reasons = {
        choice.types_only: f"every block type, but without {', '.join(choice.types_only.lacks)}",
        choice.in_a_row: "all of it without a gap",
        chosen: "chosen",  # last: it may be one of the others
    }
    for option, reason in sorted(reasons.items(), key=lambda item: item[0].nbytes):
        mark = "✓" if option == chosen else ""
        table.add_row(mark, _numbers(option), option.pattern, f"{option.nbytes + rest:,}", reason)
    return Group(why, Text(""), table, Text(""))


def _numbers(option: Candidate) -> str:
    """`0,1,7,8`, or `0–8` for a run of more than four."""
    first, last = option.layers[0], option.layers[-1]
    if len(option.layers) > 4 and last - first + 1 == len(option.layers):
        return f"{first}–{last}"
    return ",".join(map(str, option.layers))


def fetch_table(plan: FetchPlan) -> Table:
    """What would be read of each file of the source."""
    table = light_table("", "file", ">ranges", ">needed", ">fetched")
    by_file = [(file, list(pieces)) for file, pieces in groupby(plan.pieces, key=attrgetter("file"))]
    for file, pieces in by_file[:SHOWN]:
        needed, fetched = sum(piece.needed for piece in pieces), sum(piece.fetched for piece in pieces)
        table.add_row(file, f"{len(pieces):,}", fmt.size(needed), fmt.size(fetched))
    if len(by_file) > SHOWN:
        table.add_row(Text(f"and {len(by_file) - SHOWN} more", "dim"), "", "", "")
    return table


def comparison_view(comparison: Comparison, a: str, b: str) -> RenderableType:
    """Equal or not, and every kind of difference."""
    compared = f"{fmt.plural(comparison.tensors, 'tensor')}, {fmt.size(comparison.nbytes)} compared"
    if comparison.identical:
        return Text.assemble(("✓ identical", "bold green"), f": {compared}")
    rows = [
        *(
            (item.name, item.kind, _value(item.a, item.first_index), item.b, item.elements)
            for item in comparison.differing
        ),
        *((name, "missing", "present", "absent", 0) for name in comparison.missing),
        *((name, "extra", "absent", "present", 0) for name in comparison.extra),
    ]
    table = light_table("", "tensor", "differs in", "a", "b", ">elements")
    table.title = _plain(f"a = {a}\nb = {b}")
    table.columns[0].overflow = "fold"
    for name, kind, left, right, elements in rows[:SHOWN]:
        table.add_row(_plain(name), kind, _plain(left), _plain(right), f"{elements:,}" if elements else "")
    verdict = Text.assemble(("✗ different", "bold red"), f": {fmt.plural(len(rows), 'difference')}; {compared}")
    rest = Text(f"and {len(rows) - SHOWN:,} more; --json lists all" if len(rows) > SHOWN else "", "dim")
    return Group(table, rest, verdict)


def _plain(text: str) -> Text:
    """Text from a file: no markup, no control characters, and not absurdly long."""
    return Text(fmt.printable(text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…"))


def _value(text: str, index: tuple[int, ...] | None) -> str:
    return text if index is None else f"[{', '.join(map(str, index))}] = {text}"


def _problems(problems: tuple[str, ...]) -> RenderableType:
    if not problems:
        return Text("✓ no problems", "green")
    lines = [Text(f"✗ {fmt.printable(problem)}", "red") for problem in problems[:SHOWN]]
    return Group(*lines, *([Text(f"and {len(problems) - SHOWN} more")] if len(problems) > SHOWN else []))
