"""What the checkpoint commands found or made, as tables."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nemotron_rl.checkpoint.inspect import Inspection
from nemotron_rl.checkpoint.ranged.plan import FetchPlan
from nemotron_rl.checkpoint.tally import Tally
from nemotron_rl.checkpoint.verify import Comparison
from nemotron_rl.report import format as fmt
from nemotron_rl.report.summary import light_table

SHOWN = 20
"""Rows of a table of differences or problems; a checkpoint can have 50,000 tensors."""
_KINDS = {"M": "Mamba2", "E": "mixture of experts", "*": "attention", "-": "dense MLP", "mtp": "multi-token prediction"}


def inspection_view(inspection: Inspection) -> RenderableType:
    """Pattern, counts per block type, types, and what is wrong."""
    dtypes = ", ".join(f"{count:,} {dtype}" for dtype, count in inspection.dtypes.items())
    mtp = f"{inspection.mtp_pattern} (depth {inspection.mtp_depth})" if inspection.mtp_pattern else "none"
    facts = light_table(inspection.name, "", "")
    facts.show_header = False
    facts.columns[1].overflow = "fold"
    facts.add_row("architecture", inspection.architecture)
    facts.add_row("pattern", f"{inspection.pattern}  ({len(inspection.pattern)} layers)")
    facts.add_row("MTP head", mtp)
    facts.add_row("tensors", f"{dtypes} in {fmt.plural(inspection.files, 'file')}")
    return Group(facts, Text(""), tally_table(inspection.tally), Text(""), _problems(inspection.problems))


def tally_table(tally: Tally) -> Table:
    """Layers, tensors, parameters and bytes per block type, and in all."""
    table = light_table("", "block", "", ">layers", ">tensors", ">parameters", ">bytes")
    for block, count in tally.by_block.items():
        layers = str(tally.layers[block]) if block in tally.layers else ""
        kind = Text(_KINDS.get(block, ""), "dim")
        table.add_row(block, kind, layers, f"{count.tensors:,}", fmt.count(count.params), fmt.size(count.nbytes))
    total = tally.total
    layers = str(sum(tally.layers.values()))
    row = ("total", "", layers, f"{total.tensors:,}", fmt.count(total.params), fmt.size(total.nbytes))
    table.add_row(*row, style="bold")
    return table


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
    table = light_table(f"a = {a}\nb = {b}", "tensor", "differs in", "a", "b", ">elements")
    table.columns[0].overflow = "fold"
    for name, kind, left, right, elements in rows[:SHOWN]:
        table.add_row(name, kind, left, right, f"{elements:,}" if elements else "")
    verdict = Text.assemble(("✗ different", "bold red"), f": {fmt.plural(len(rows), 'difference')}; {compared}")
    rest = Text(f"and {len(rows) - SHOWN:,} more; --json lists all" if len(rows) > SHOWN else "", "dim")
    return Group(table, rest, verdict)


def _value(text: str, index: tuple[int, ...] | None) -> str:
    return text if index is None else f"[{', '.join(map(str, index))}] = {text}"


def _problems(problems: tuple[str, ...]) -> RenderableType:
    if not problems:
        return Text("✓ no problems", "green")
    lines = [Text(f"✗ {problem}", "red") for problem in problems[:SHOWN]]
    return Group(*lines, *([Text(f"and {len(problems) - SHOWN} more")] if len(problems) > SHOWN else []))
