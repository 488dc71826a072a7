"""The sbatch script of a job. Pure: equal specs give equal text, and golden files show it."""

from __future__ import annotations

import math
import re
import shlex

import jinja2

from nemotron_rl.cluster.environment import added
from nemotron_rl.cluster.files import ERROR_FILE
from nemotron_rl.cluster.job import JobSpec
from nemotron_rl.cluster.launch import command
from nemotron_rl.config.run import ClusterSettings
from nemotron_rl.errors import InputError

_UNQUOTABLE = re.compile(r"[\"\\\n]")


def render(spec: JobSpec, settings: ClusterSettings) -> str:
    """The script's text. Raises InputError for a folder whose name an #SBATCH line cannot hold."""
    if _UNQUOTABLE.search(str(spec.work_dir)):
        raise InputError(f"job folder {str(spec.work_dir)!r}: sbatch cannot take quotes, backslashes or newlines in it")
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("nemotron_rl.cluster"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # it is a shell script: values go through the filter `quote`
    )
    templates.filters["quote"] = shlex.quote
    return templates.get_template("job.sbatch.j2").render(
        spec=spec,
        command=command(spec),
        env=added(spec),
        cpus_per_task=spec.ranks_per_node * spec.cpus_per_rank,
        minutes=math.ceil(spec.time_limit_minutes),
        partition=settings.partition,
        account=settings.account,
        error_file=ERROR_FILE,
    )
