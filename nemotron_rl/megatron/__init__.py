"""The trainer: megatron-core's HybridModel, built and fed through megatron-bridge. Nothing here decides what to train.

Import `nemotron_rl.megatron.backend` first and activate a backend; everything else imports megatron.
"""
