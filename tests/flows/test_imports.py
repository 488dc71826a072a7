"""A head node has no GPU stack: nothing here may import it."""

from __future__ import annotations

import subprocess
import sys


def test_flows_import_no_gpu_stack():
    script = """
import sys
import flows.validate, flows.train
heavy = {"torch", "megatron", "transformers", "sglang", "safetensors"} & sys.modules.keys()
sys.exit(f"imported {heavy}" if heavy else 0)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
