"""Rules that need two settings or more. Each is a named function; add one by writing it below `@rule`.

A rule of ranks and nodes, which holds for conversions too, stands below `@rule_of_every_job`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd

from nemotron_rl.config.fields import flat
from nemotron_rl.config.geometry import geometry_of
from nemotron_rl.config.nearest import divisors, nearest_multiple, nearest_number
from nemotron_rl.config.parallel import Broken, broken_parallel, broken_world
from nemotron_rl.config.problem import Problem, raise_problems
from nemotron_rl.config.settings import Settings

Rule = Callable[[Settings], Iterator[Broken]]

RULES: dict[str, Rule] = {}
"""Every rule by its name, in the order of this file."""

EVERY_JOB: set[str] = set()
"""Names of those that hold for a job that does not train, too."""


def rule(function: Rule) -> Rule:
    """Register a rule: a generator of what is broken, nothing when all is well."""
    RULES[function.__name__] = function
    return function


def rule_of_every_job(function: Rule) -> Rule:
    """Register a rule that also holds for a job that loads the model and does not train it."""
    EVERY_JOB.add(function.__name__)
    return rule(function)


def broken_rules(settings: Settings, *, trains: bool = True) -> list[Broken]:
    """What is broken, over all rules; or, without training, over those of every job."""
    checks = [check for name, check in RULES.items() if trains or name in EVERY_JOB]
    return [broken for check in checks for broken in check(settings)]


def check_settings(settings: Settings) -> None:
    """Raise one SettingsError that lists every broken rule."""
    values = flat(settings)
    raise_problems([Problem(broken.key, broken.message, values[broken.key]) for broken in broken_rules(settings)])


@rule_of_every_job
def ranks_multiply_up_to_the_world_size(settings: Settings) -> Iterator[Broken]:
    yield from broken_world(settings.parallel)


@rule_of_every_job
def model_can_be_split(settings: Settings) -> Iterator[Broken]:
    geometry = geometry_of(settings.source.uri)
    if geometry is not None:
        yield from broken_parallel(settings.parallel, **vars(geometry))


@rule
def samples_of_a_prompt_differ(settings: Settings) -> Iterator[Broken]:
    if settings.rollout.sampling.temperature == 0:
        yield Broken(
            "rollout.sampling.temperature",
            "greedy sampling makes all samples of a prompt equal, and their advantages 0; use 1.0",
        )


@rule
def the_longest_response_fits_into_a_pass(settings: Settings) -> Iterator[Broken]:
    per_gpu, cp = settings.train.max_tokens_per_gpu, settings.parallel.cp
    longest = settings.rollout.sampling.max_new_tokens + 1  # and a prompt
    if per_gpu is not None and per_gpu * cp < longest:
        yield Broken(
            "train.max_tokens_per_gpu",
            f"a response of {longest - 1} tokens and its prompt must fit into one pass; use more than {longest // cp}",
            ("rollout.sampling.max_new_tokens", "parallel.cp"),
        )


@rule
def prompts_spread_evenly_over_data_parallel_ranks(settings: Settings) -> Iterator[Broken]:
    parallel = settings.parallel
    if parallel.world_size % (parallel.tp * parallel.pp * parallel.cp):
        return  # another rule says so, and dp means nothing then
    batches = {"train.prompts_per_step": settings.train.prompts_per_step}
    if settings.warmup.steps:
        batches["warmup.batch_size"] = settings.warmup.batch_size
    for key, size in batches.items():
        if size % parallel.dp:
            nearest = max(1, round(size / parallel.dp)) * parallel.dp
            yield Broken(
                key,
                f"should be a multiple of the {parallel.dp} data-parallel ranks; the nearest is {nearest}",
                ("parallel.world_size", "parallel.tp", "parallel.pp", "parallel.cp"),
            )


@rule
def updates_share_out_the_prompts_evenly(settings: Settings) -> Iterator[Broken]:
    parallel, train = settings.parallel, settings.train
    if parallel.world_size % (parallel.tp * parallel.pp * parallel.cp) or train.prompts_per_step % parallel.dp:
        return  # another rule says so
    per_rank = train.prompts_per_step // parallel.dp
    if per_rank % train.updates_per_rollout:
        yield Broken(
            "train.updates_per_rollout",
            f"should divide the {per_rank} prompts of each data-parallel rank; "
            f"the nearest is {nearest_number(train.updates_per_rollout, divisors(per_rank))}",
            ("train.prompts_per_step", "parallel.world_size"),
        )


@rule
def cpu_backend_runs_fp32_and_the_reference_engine(settings: Settings) -> Iterator[Broken]:
    if settings.model.backend != "cpu":
        return
    if settings.model.dtype != "fp32":
        yield Broken("model.dtype", "the cpu backend computes in fp32; use fp32", ("model.backend",))
    if settings.rollout.engine != "reference":
        yield Broken("rollout.engine", "needs model.backend = cuda; on cpu use reference", ("model.backend",))


@rule
def layers_are_distinct(settings: Settings) -> Iterator[Broken]:
    layers = settings.slice.layers
    if layers is None:
        return
    if not layers:
        yield Broken("slice.layers", "keeps no layer; name at least one, or null to keep all")
    if negative := [layer for layer in layers if layer < 0]:
        yield Broken("slice.layers", f"layer {negative[0]} is negative; layers count from 0")
    if repeated := sorted({layer for layer in layers if layers.count(layer) > 1}):
        yield Broken("slice.layers", f"layer {repeated[0]} is repeated; a layer can be kept once")


@rule
def schedules_decay_downwards(settings: Settings) -> Iterator[Broken]:
    for name, phase in (("train", settings.train), ("warmup", settings.warmup)):
        optimizer = phase.optimizer
        if optimizer.min_lr > optimizer.lr:
            yield Broken(
                f"{name}.optimizer.min_lr",
                f"should not be above {name}.optimizer.lr = {optimizer.lr:g}",
                (f"{name}.optimizer.lr",),
            )


@rule
def optimizer_variants_have_what_they_need(settings: Settings) -> Iterator[Broken]:
    for name, phase in (("train", settings.train), ("warmup", settings.warmup)):
        optimizer, prefix = phase.optimizer, f"{name}.optimizer"
        variants = {"moments": optimizer.moments != "fp32", "cpu_offload": optimizer.cpu_offload > 0}
        neutral = {"moments": "fp32", "cpu_offload": "0"}
        for variant, wanted in variants.items():
            key, involved = f"{prefix}.{variant}", ("model.backend", f"{prefix}.distributed")
            if wanted and settings.model.backend == "cpu":
                yield Broken(
                    key, f"the optimizer of the cpu backend is torch's AdamW; use {neutral[variant]}", involved
                )
            elif wanted and not optimizer.distributed:
                yield Broken(key, f"needs {prefix}.distributed = true; set it, or use {neutral[variant]}", involved)


@rule
def resume_names_a_checkpoint(settings: Settings) -> Iterator[Broken]:
    resume = settings.train.resume
    if isinstance(resume, int):
        if resume < 1:
            yield Broken("train.resume", f"there is no checkpoint of step {resume}; use none to start from step 0")
    elif resume not in ("auto", "none") and not resume.startswith("/"):
        yield Broken("train.resume", "should be auto, none, a step number, or the absolute path of a checkpoint or run")


@rule
def prompt_files_come_in_pairs(settings: Settings) -> Iterator[Broken]:
    data = settings.data
    if data.train_file and not data.eval_file:
        yield Broken("data.eval_file", "is needed with data.train_file: generated prompts would evaluate another task")
    if data.eval_file and not data.train_file:
        yield Broken("data.train_file", "is needed with data.eval_file: generated prompts would train another task")


@rule
def generated_prompts_leave_some_to_train_on(settings: Settings) -> Iterator[Broken]:
    data = settings.data
    total = len(data.arithmetic.problems)
    if data.eval_file is None and data.eval_prompts >= total:
        yield Broken(
            "data.eval_prompts",
            f"data.arithmetic has {total} different problems; hold out at most {total - 1}",
            ("data.arithmetic.max_left", "data.arithmetic.max_right"),
        )


@rule
def separate_rollouts_have_ranks_for_whole_engines(settings: Settings) -> Iterator[Broken]:
    ranks, unit = settings.rollout.ranks, settings.rollout.ranks_per_engine
    if settings.rollout.placement == "shared":
        if ranks:
            message = "engines that share the trainer's ranks have none of their own; use 0, or placement = separate"
            yield Broken("rollout.ranks", message, ("rollout.placement",))
    elif not ranks or ranks % unit:
        per_engine = f"a multiple of rollout.sglang.gpus_per_engine = {unit}" if unit > 1 else "at least 1"
        yield Broken(
            "rollout.ranks",
            f"separate engines need ranks of their own, {per_engine}; the nearest is {nearest_multiple(ranks, unit)}",
            ("rollout.placement", "rollout.engine", "rollout.sglang.gpus_per_engine"),
        )


@rule_of_every_job
def ranks_spread_evenly_over_nodes(settings: Settings) -> Iterator[Broken]:
    nodes, world, rollouts = settings.cluster.nodes, settings.parallel.world_size, settings.rollout.ranks
    if settings.cluster.kind == "local" and nodes > 1:
        yield Broken("cluster.nodes", "a local run has one node; use 1 or cluster.kind = slurm", ("cluster.kind",))
    elif world % nodes or rollouts % nodes:
        both = f" and rollout.ranks = {rollouts}" if rollouts else ""
        choice = nearest_number(nodes, divisors(gcd(world, rollouts)))
        yield Broken(
            "cluster.nodes",
            f"should divide parallel.world_size = {world}{both}; the nearest is {choice}",
            ("parallel.world_size", "rollout.ranks"),
        )


@rule_of_every_job
def every_cuda_rank_on_slurm_has_a_gpu(settings: Settings) -> Iterator[Broken]:
    cluster = settings.cluster
    per_node = -(-settings.train_ranks // cluster.nodes)
    if settings.model.backend == "cuda" and cluster.kind == "slurm" and cluster.gpus_per_node < per_node:
        yield Broken(
            "cluster.gpus_per_node",
            f"each of the {per_node} ranks of a node needs a GPU; use {per_node}",
            ("cluster.nodes", "parallel.world_size", "rollout.ranks", "model.backend", "cluster.kind"),
        )


@rule
def gates_ask_for_what_is_measured(settings: Settings) -> Iterator[Broken]:
    if settings.gates.mtp_loss_max is not None and (settings.slice.mtp == "drop" or not settings.train.mtp.enabled):
        yield Broken(
            "gates.mtp_loss_max",
            "no MTP loss is measured with slice.mtp = drop or train.mtp.enabled = false; use null",
            ("slice.mtp", "train.mtp.enabled"),
        )


@rule
def memory_growth_needs_steps(settings: Settings) -> Iterator[Broken]:
    if settings.gates.memory_growth_max is not None and settings.train.steps < 3:
        yield Broken(
            "gates.memory_growth_max",
            "growth is measured from the second step on, which takes 3 steps; use null",
            ("train.steps",),
        )


@rule
def kl_in_the_loss_has_a_gradient(settings: Settings) -> Iterator[Broken]:
    algorithm = settings.algorithm
    if algorithm.kl_coef > 0 and algorithm.kl_in == "loss" and algorithm.kl_estimator == "k1":
        yield Broken(
            "algorithm.kl_estimator",
            "k1's gradient in the loss is zero on average; use k2 or k3, or algorithm.kl_in = reward",
            ("algorithm.kl_in", "algorithm.kl_coef"),
        )


@rule
def kl_has_a_reference_model(settings: Settings) -> Iterator[Broken]:
    algorithm = settings.algorithm
    if algorithm.kl_coef > 0 and algorithm.reference_weights == "none":
        yield Broken(
            "algorithm.reference_weights",
            "the KL penalty compares with the starting weights, of which none keeps no copy; use device or host, or "
            "algorithm.kl_coef = 0",
            ("algorithm.kl_coef",),
        )


@rule
def off_policy_bounds_leave_room(settings: Settings) -> Iterator[Broken]:
    bounds = settings.algorithm.off_policy
    if bounds.correction != "none" and not bounds.low <= 1 <= bounds.high:
        yield Broken(
            "algorithm.off_policy.low" if bounds.low > 1 else "algorithm.off_policy.high",
            f"the bounds [{bounds.low:g}, {bounds.high:g}] leave out 1, the ratio of equal models; move this past 1",
            ("algorithm.off_policy.low", "algorithm.off_policy.high", "algorithm.off_policy.correction"),
        )


@rule
def overlong_tokens_are_part_of_the_response(settings: Settings) -> Iterator[Broken]:
    longest = settings.rollout.sampling.max_new_tokens
    if settings.algorithm.overlong_tokens > longest:
        yield Broken(
            "algorithm.overlong_tokens",
            f"should not be above rollout.sampling.max_new_tokens = {longest}",
            ("rollout.sampling.max_new_tokens",),
        )


@rule
def only_dropped_groups_are_drawn_again(settings: Settings) -> Iterator[Broken]:
    algorithm = settings.algorithm
    if algorithm.redraw_rounds and not algorithm.drop_equal_groups:
        yield Broken(
            "algorithm.redraw_rounds",
            "draws prompts in the place of dropped ones; set algorithm.drop_equal_groups = true, or use 0",
            ("algorithm.drop_equal_groups",),
        )
