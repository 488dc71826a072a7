"""The settings of a whole run: one section per component."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from nemotron_rl.config.base import Frozen
from nemotron_rl.config.data import DataSettings, RewardSettings
from nemotron_rl.config.judging import EvaluateSettings, GateSettings
from nemotron_rl.config.model import ModelSettings, ParallelSettings
from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.config.rollout import RolloutSettings
from nemotron_rl.config.run import ClusterSettings, StoreSettings
from nemotron_rl.config.source import ConvertSettings, SliceSettings, SourceSettings
from nemotron_rl.config.training import TrainSettings, WarmupSettings


class Settings(Frozen):
    """Everything that a run is told. Built by `nemotron_rl.config.load.load_settings`."""

    preset: str = "tiny"
    """The preset that these settings started from."""
    run_id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Names the run; its files are in `{output_dir}/{run_id}`."""
    output_dir: Path = Path("runs")
    """Holds runs, the local store and the cache of fetched artifacts."""
    seed: int = Field(0, ge=0)
    """Seed of sampling and of everything random in training."""
    source: SourceSettings = SourceSettings()
    slice: SliceSettings = SliceSettings()
    convert: ConvertSettings = ConvertSettings()
    model: ModelSettings = ModelSettings()
    parallel: ParallelSettings = ParallelSettings()
    warmup: WarmupSettings = WarmupSettings()
    train: TrainSettings = TrainSettings()
    algorithm: AlgorithmSettings = AlgorithmSettings()
    rollout: RolloutSettings = RolloutSettings()
    data: DataSettings = DataSettings()
    reward: RewardSettings = RewardSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    gates: GateSettings = GateSettings()
    cluster: ClusterSettings = ClusterSettings()
    store: StoreSettings = StoreSettings()

    @property
    def run_dir(self) -> Path:
        """The folder of this run."""
        return self.output_dir / self.run_id

    @property
    def train_ranks(self) -> int:
        """Ranks of the training job: those that train, and those that only generate."""
        return self.parallel.world_size + self.rollout.ranks

    @property
    def store_uri(self) -> str:
        """The store's address, the default resolved."""
        return self.store.uri or (self.output_dir.absolute() / "store").as_uri()
