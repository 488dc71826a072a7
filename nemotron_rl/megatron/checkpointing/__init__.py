"""Saves a training run and resumes it: `{output_dir}/{run_id}/checkpoints/step_N`, through the store's manifests.

`state` is what is saved, `writing` how it gets to the disk while training goes on, `record` what a checkpoint says
about itself and when it may be resumed, `saver` what the training job uses. Step N is the state after N updates.
"""
